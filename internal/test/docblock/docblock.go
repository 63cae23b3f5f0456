// Package docblock has the blocks of code on the documentation's pages, for tests that run them.
package docblock

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Root is the repository's folder, as the tests of a package see it.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(text), "module github.com/penstock/penstock\n") {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the test does not run in the repository")
		}
	}
}

// Of are the blocks of a language on a page, in their order. The page is named by its path in the repository.
func Of(t testing.TB, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return blocks
}

// Excerpt wants the lines of a block in a Go file of the test's folder, in their order, in the function that begins so. It may have others
// between them. The spaces in a line do not count.
func Excerpt(t testing.TB, block, file, begins string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, source, found := strings.Cut(string(text), "\n"+begins)
	if !found {
		t.Fatalf("%s has no %s", file, begins)
	}
	source, _, _ = strings.Cut(source, "\n}\n")
	same := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	var rest []string
	for line := range strings.Lines(source) {
		rest = append(rest, same(line))
	}
	for line := range strings.Lines(block) {
		if line = same(line); line == "" {
			continue
		}
		i := slices.Index(rest, line)
		if i < 0 {
			t.Fatalf("%s: %s has not, or not there: %s", file, begins, line)
		}
		rest = rest[i+1:]
	}
}
