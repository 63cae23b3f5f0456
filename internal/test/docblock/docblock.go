// Package docblock has the blocks of code on the documentation's pages, for tests that run them.
package docblock

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// began is the folder of the package whose tests run. Tests may change the working directory
// later.
var began, errBegan = os.Getwd()

// Root is the repository's folder.
func Root(t testing.TB) string {
	t.Helper()
	here, err := filepath.EvalSymlinks(began) // a walk does not follow the link with which it begins
	if err = cmp.Or(errBegan, err); err != nil {
		t.Fatal(err)
	}
	for dir := here; ; dir = filepath.Dir(dir) {
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

// Excerpt requires that a Go file of the test's folder has the lines of a block, in their order, in the function that begins with
// this text. Other lines may be between them. Spaces within a line do not count.
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

// Command is one of a block of shell.
type Command struct {
	Env     []string // NAME=value, before its name
	Args    []string // without quotes; the name is the first
	Comment string   // behind it
}

var shellWord = regexp.MustCompile(`(?:"[^"]*"|'[^']*'|\$\([^)]*\)|[^\s'"])+`)

// Commands parses a block of shell as simple as the documentation's: words, quotes, comments, and lines that \ continues. Variables are
// not expanded.
func Commands(t testing.TB, block string) (all []Command) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		var c Command
		for _, at := range shellWord.FindAllStringIndex(line, -1) {
			word := line[at[0]:at[1]]
			if strings.HasPrefix(word, "#") {
				c.Comment = strings.TrimSpace(line[at[0]+1:])
				break
			}
			if strings.ContainsAny(word[:1], "|&;<>`") {
				t.Fatalf("the test cannot run: %s", line)
			}
			word = regexp.MustCompile(`"[^"]*"|'[^']*'`).ReplaceAllStringFunc(word, func(quoted string) string { return quoted[1 : len(quoted)-1] })
			if len(c.Args) == 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(word) {
				c.Env = append(c.Env, word)
			} else {
				c.Args = append(c.Args, word)
			}
		}
		if len(c.Args) > 0 {
			all = append(all, c)
		}
	}
	return all
}
