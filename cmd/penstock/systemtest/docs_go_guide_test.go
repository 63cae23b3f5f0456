package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/testserver"
)

// The guide's program and its test are built in an empty folder, from this repository instead of the clone, and do what the page says.
func TestGoGuide(t *testing.T) {
	t.Parallel()
	g := newGoGuide(t, "sqlite:shop.db")
	g.save("shop_test.go", docblock.Of(t, goGuidePage, "go")[1])
	for _, block := range g.commands[:3] {
		g.follow(block)
	}
}

// The program with the lines for PostgreSQL does the same there.
func TestGoGuideOnPostgreSQL(t *testing.T) {
	t.Parallel()
	const said = "postgres://postgres@localhost/shop"
	database := testserver.Database(t, testserver.PostgresURL(t))
	g := newGoGuide(t, database)
	g.save("postgres.diff", docblock.Of(t, goGuidePage, "diff")[0])
	if !strings.Contains(g.commands[3], said) {
		t.Fatalf("the page does not say %s any more", said)
	}
	g.follow(g.commands[0])
	g.follow(strings.Replace(g.commands[3], said, "'"+database+"'", 1))
	if n := count(t, database, "select count(*) from penstock.orders o join shop_order s on s.customer = o.key"); n != 1 {
		t.Errorf("%d messages of an order are in the outbox, want 1", n)
	}
}

const goGuidePage = "docs/guides/go.md"

// goGuide follows the guide in a folder with the program.
type goGuide struct {
	*walk
	t        *testing.T
	commands []string
}

func newGoGuide(t *testing.T, database string) *goGuide {
	t.Helper()
	g := &goGuide{walk: newWalk(t, database), t: t, commands: docblock.Of(t, goGuidePage, "sh")}
	if len(g.commands) != 4 {
		t.Fatalf("%d blocks of commands, want 4", len(g.commands))
	}
	root := docblock.Root(t)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	g.save("main.go", docblock.Of(t, goGuidePage, "go")[0])
	g.save("go.sum", string(sums))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		g.exports = append(g.exports, "export "+name+"='"+strings.TrimSpace(string(value))+"'")
	}
	g.exports = append(g.exports, "export GOPROXY=off GOFLAGS=-mod=mod") // the modules of the repository suffice
	_, module, ok := strings.Cut(g.commands[0], "cd shop\n")
	if !ok {
		t.Fatalf("it does not begin in the folder shop:\n%s", g.commands[0])
	}
	g.commands[0] = module
	for i, block := range g.commands {
		g.commands[i] = strings.NewReplacer("../penstock/bin/", "", "=../penstock", "="+root).Replace(block)
	}
	return g
}

func (g *goGuide) save(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}
