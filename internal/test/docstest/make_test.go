package docstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
)

// makePages show commands in a clone of the repository. Most run for minutes, or install servers.
var makePages = []string{"CONTRIBUTING.md", "docs/reference/benchmarks.md"}

// Make knows the targets that the pages name, and its commands have the values that the pages give. Packages are there.
func TestMake(t *testing.T) {
	maker, err := exec.LookPath("make")
	if err != nil {
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			t.Fatal(err)
		}
		t.Skip("there is no make")
	}
	if _, err := os.ReadFile(filepath.Join(root, "Makefile")); err != nil { // a cached result is that of this file
		t.Fatal(err)
	}
	asked := 0
	for _, page := range makePages {
		for _, block := range docblock.Of(t, page, "sh") {
			for _, c := range docblock.Commands(t, block) {
				for _, word := range strings.Fields(strings.Join(c.Args, " ")) {
					if folder := strings.TrimSuffix(word[strings.Index(word, "=")+1:], "/..."); strings.HasPrefix(folder, "./") {
						if _, err := os.Stat(filepath.Join(root, folder)); err != nil {
							t.Errorf("%s: %v", page, err)
						}
					}
				}
				if c.Args[0] != "make" {
					continue
				}
				asked++
				dry := exec.Command(maker, append([]string{"--dry-run", "--no-print-directory", "-C", root}, c.Args[1:]...)...)
				dry.Env = []string{"PATH="} // the version that it asks git for does not matter
				out, err := dry.CombinedOutput()
				if err != nil {
					t.Errorf("%s: %q: %v: %s", page, c.Args, err, out)
				}
				for _, arg := range c.Args[1:] {
					if _, value, is := strings.Cut(arg, "="); is && !strings.Contains(string(out), value) {
						t.Errorf("%s: %q runs no command with %s:\n%s", page, c.Args, value, out)
					}
				}
			}
		}
	}
	if asked < 15 {
		t.Errorf("only %d commands of make were found", asked)
	}
}
