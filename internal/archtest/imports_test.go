// Package archtest holds the direction of imports: drivers know the domain and
// nothing of each other, the relay and worker know only the domain, the domain knows
// nobody.
package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/penstock/penstock"

// rule says what the packages of a folder import of this module. Folders are
// relative to the module and stand for what is under them too; "." is the root
// package alone, "store/*" each folder under store.
type rule struct {
	folder string
	may    []string // in any file
	tests  []string // in test files, besides may
}

// self is the folder that the rule matched, with what is under it.
const self = "self"

// rules in the order in which they are tried; a folder that none matches has to
// be given one.
var rules = []rule{
	{folder: ".", tests: []string{".", "internal/*"}},
	{folder: "relay", may: []string{"."}, tests: []string{self, "internal/*", "store/memory"}},
	{folder: "work", may: []string{"."}, tests: []string{self, "internal/*", "store/memory"}},

	{folder: "store/storetest", may: []string{".", "internal/*"}, tests: []string{self}},
	{folder: "store/queuetest", may: []string{".", "work", "internal/*"}, tests: []string{self}},
	{folder: "store/postgres/adopt", may: []string{".", "internal/*", self}, tests: []string{"relay", "store/postgres"}},
	{folder: "store/*", may: []string{".", "work", "internal/*", self}, tests: []string{"store/storetest", "store/queuetest"}},
	{folder: "sink/sinktest", may: []string{".", "internal/*"}, tests: []string{self}},
	{folder: "sink/webhook", may: []string{".", "internal/*", self}, tests: []string{"sink/sinktest", "relay", "store/memory"}}, // measured with the relay in front
	{folder: "sink/*", may: []string{".", "internal/*", self}, tests: []string{"sink/sinktest"}},

	{folder: "format", may: []string{".", "internal/*"}, tests: []string{self, "sink/*"}},

	{folder: "inbox", may: []string{"."}, tests: []string{self, "internal/*", "relay", "store/*", "sink/*"}}, // end to end

	{folder: "internal/archtest"},
	{folder: lab, may: wiring, tests: []string{self}},
	{folder: "internal/cli", may: append(wiring, self)},
	{folder: "internal/*", may: []string{".", "internal/*"}},

	// Where the parts are put together.
	{folder: "config", may: []string{".", "internal/*", "relay", "store/*", "sink/*", "format"}, tests: []string{self}},
	{folder: "systemtest", may: wiring, tests: []string{self}},
	{folder: "examples", may: wiring, tests: []string{self}},
	{folder: "cmd/penstock", may: append(wiring, self)},
}

// lab measures and proves: it is put together from everything, and nobody below knows it.
const lab = "internal/lab"

var wiring = []string{".", "internal/*", "relay", "work", "store/*", "sink/*", "format", "inbox", "config", lab}

// forTests are imported by tests, by the suites and by commands for tests only;
// nothing of them gets into the penstock program.
var (
	forTests = []string{"store/storetest", "store/queuetest", "store/postgres/postgrestest", "sink/sinktest", "internal/testserver", "internal/testseed", "internal/testcerts", "internal/cli/clitest"}
	suites   = []string{"store/storetest", "store/queuetest", "store/postgres/postgrestest", "sink/sinktest", "internal/testserver", "systemtest", "internal/lab/chaos"}
)

// objection says why a file of folder must not import the folder target, both
// of this module; empty if it may.
func objection(folder string, isTest bool, target string) string {
	i := slices.IndexFunc(rules, func(r rule) bool { return within(folder, r.folder) })
	if i < 0 {
		return "no rule for the folder " + folder + ": add one to internal/archtest"
	}
	r := rules[i]
	allowed := r.may
	if isTest {
		allowed = slices.Concat(r.may, r.tests)
	} else if matches(target, forTests) && !matches(folder, suites) {
		return "only tests import " + target
	}
	for _, a := range allowed {
		if a == self {
			a = matched(folder, r.folder)
		}
		if within(target, a) && (a == lab || !within(target, lab)) {
			return ""
		}
	}
	return folder + " must not import " + target
}

// within reports whether folder is pattern or lies under it.
func within(folder, pattern string) bool { return matched(folder, pattern) != "" }

// matched returns the part of folder that pattern stands for: "store/sqlite"
// for store/sqlite/driver and "store/*". Only the root itself is in ".".
func matched(folder, pattern string) string {
	f, p := strings.Split(folder, "/"), strings.Split(pattern, "/")
	if len(f) < len(p) {
		return ""
	}
	for i := range p {
		if p[i] != "*" && p[i] != f[i] {
			return ""
		}
	}
	return path.Join(f[:len(p)]...)
}

func matches(folder string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return within(folder, p) })
}

func TestImports(t *testing.T) {
	root := moduleRoot(t)
	files := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || hasModule(file)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		files++
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for _, imported := range imports(t, file) {
			target, ours := strings.CutPrefix(imported+"/", module+"/")
			if !ours {
				if path.Dir(rel) == "." && !strings.HasSuffix(rel, "_test.go") && doesIO(imported) {
					t.Errorf("%s imports %s: the domain is plain Go and does no I/O", rel, imported)
				}
				continue
			}
			if why := objection(path.Dir(rel), strings.HasSuffix(rel, "_test.go"), path.Clean(target)); why != "" {
				t.Errorf("%s: %s", rel, why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Fatalf("only %d Go files under %s: is it the module?", files, root)
	}
}

// doesIO reports whether a package is outside the standard library or made for
// files, networks, processes or databases.
func doesIO(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".") || slices.Contains([]string{"os", "net", "database", "syscall", "embed"}, first)
}

func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !hasModule(dir) {
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
	return dir
}

func imports(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// The rules themselves: what they let pass and what they stop.
func TestObjection(t *testing.T) {
	for _, c := range []struct {
		folder string
		test   bool
		target string
		ok     bool
	}{
		{"store/sqlite", false, ".", true},
		{"store/sqlite", false, "internal/template", true},
		{"store/sqlite", false, "store/postgres", false},
		{"store/sqlite", false, "store/storetest", false},
		{"store/sqlite", true, "store/storetest", true},
		{"store/sqlite", false, "store/queuetest", false},
		{"store/sqlite", true, "store/queuetest", true},
		{"store/queuetest", false, "store/memory", false},
		{"store/sqlite", true, "store/sqlite", true},
		{"store/sqlite", true, "store/postgres", false},
		{"store/sqlite", false, "relay", false},
		{"sink/nats", false, "sink/nats/embedded", true},
		{"sink/nats/embedded", false, ".", true},
		{"sink/nats", false, "sink/rabbitmq", false},
		{"sink/nats", false, "store/memory", false},
		{"sink/nats", true, "sink/sinktest", true},
		{"sink/nats", true, "store/storetest", false},
		{"relay", false, ".", true},
		{"relay", false, "internal/template", false},
		{"relay", false, "store/memory", false},
		{"relay", true, "store/memory", true},
		{"relay", true, "store/postgres", false},
		{"work", false, ".", true},
		{"work", false, "store/memory", false},
		{".", false, "work", false},
		{".", false, "internal/template", false},
		{"internal/template", false, ".", true},
		{"internal/template", false, "relay", false},
		{"internal/template", false, "internal/lab/bench", false},
		{"internal/lab/bench", false, "sink/nats", true},
		{"cmd/penstock", false, "internal/lab/bench", true},
		{"config", false, "sink/nats", true},
		{"config", false, "cmd/penstock", false},
		{"cmd/penstock", false, "relay", true},
		{"cmd/penstock", false, "internal/testserver", false},
		{"cmd/penstock", true, "internal/testserver", true},
		{"internal/testserver/withservers", false, "internal/testserver", true},
		{"somewhere/new", false, ".", false},
	} {
		if why := objection(c.folder, c.test, c.target); (why == "") != c.ok {
			t.Errorf("%s (test: %v) importing %s: %q, want allowed = %v", c.folder, c.test, c.target, why, c.ok)
		}
	}
}
