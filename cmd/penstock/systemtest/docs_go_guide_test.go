package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
)

// The guide's program and its test are built in an empty folder, from this repository instead of the clone, and do what the page says.
func TestGoGuide(t *testing.T) {
	t.Parallel()
	const page = "docs/guides/go.md"
	commands, programs := docblock.Of(t, page, "sh"), docblock.Of(t, page, "go")
	if len(commands) != 3 || len(programs) != 2 {
		t.Fatalf("%d blocks of commands and %d of Go, want 3 and 2", len(commands), len(programs))
	}
	w := newWalk(t, "sqlite:shop.db")
	root := docblock.Root(t)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.go": programs[0], "shop_test.go": programs[1], "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		w.exports = append(w.exports, "export "+name+"='"+strings.TrimSpace(string(value))+"'")
	}
	w.exports = append(w.exports, "export GOPROXY=off GOFLAGS=-mod=mod") // the modules of the repository suffice
	_, module, ok := strings.Cut(commands[0], "cd shop\n")
	if !ok {
		t.Fatalf("it does not begin in the folder shop:\n%s", commands[0])
	}
	for _, block := range []string{module, commands[1], commands[2]} {
		w.follow(strings.NewReplacer("../penstock/bin/", "", "=../penstock", "="+root).Replace(block))
	}
}
