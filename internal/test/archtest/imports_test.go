// Package archtest holds the direction of imports. Drivers know the domain and nothing of each
// other, the relay and worker know only the domain, and the domain knows none of them.
package archtest

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
)

const module = "github.com/penstock/penstock"

// row returns which of our packages a room imports. A room is a folder, relative to the module, with
// its subfolders, or several: "store/*" is each folder under store. "." is only the root package.
type row struct {
	room  string
	may   []string // in any file: other rooms, or folders in them
	tests []string // in test files, in addition to may
	named bool     // only a row that has this very room may import it: internal/* does not stand for internal/test
}

// self is the folder of the room that a file is in: store/sqlite for store/sqlite/driver.
const self = "self"

// program has the rooms that only the program needs.
const program = "cmd/penstock/internal/"

// lab is a separate module, whose packages are in rooms as those of this one.
const lab = "lab"

// helpers may be used by any test.
var helpers = []string{self, "internal/*", "internal/test"}

// wiring is everything from which parts are assembled.
var wiring = []string{self, ".", "admin", "driver", "internal/*", "internal/drivers", "relay", "work", "writer", "metrics", "trace", "store/*", "store/postgres/adopt", "sink/*"}

// rooms in the order in which they are tried; a folder that is in none needs one.
var rooms = []row{
	{room: ".", tests: with(helpers, "admin", "driver")},
	{room: "admin", may: []string{"."}, tests: with(helpers, "store/sqlite")},
	{room: "driver", may: []string{".", "admin"}, tests: helpers},
	{room: "relay", may: []string{".", "admin", "driver", "internal/inflight", "internal/settings"}, tests: with(helpers, "store/sqlite")},
	{room: "work", may: []string{".", "admin", "driver", "internal/settings"}, tests: with(helpers, "store/*")},

	{room: "writer", may: []string{".", "admin", "driver"}, tests: with(helpers, "store/*")},
	{room: "trace", may: []string{self, ".", "admin", "driver", "relay", "work"}, tests: with(helpers, "store/*")},
	{room: "metrics", may: []string{".", "admin", "driver", "relay", "work", "internal/*"}, tests: with(helpers, "store/*", "sink/*")},

	// The reader of adopted tables on PostgreSQL. Programs with store/postgres do not contain it.
	{room: "store/postgres/adopt", named: true, may: []string{self, ".", "admin", "driver", "internal/*"}, tests: with(helpers, "relay", "store/*")},
	{room: "store/*", may: []string{self, ".", "admin", "driver", "work", "internal/*"}, tests: helpers},

	{room: "sink/format", may: []string{self, ".", "admin", "driver", "internal/*"}, tests: with(helpers, "sink/*")},
	{room: "sink/claimcheck", may: []string{self, ".", "admin", "driver", "internal/*"}, tests: with(helpers, "relay", "store/*", "sink/*")},
	{room: "sink/previous", may: []string{self, ".", "admin", "driver"}, tests: with(helpers, "relay", "store/*", "sink/*")}, // end to end
	{room: "sink/*", may: []string{self, ".", "admin", "driver", "internal/*"}, tests: with(helpers, "relay", "store/sqlite", "internal/natsserver")},

	// The base of tests: suites, models, servers, certificates.
	{room: "internal/test", named: true, may: []string{self, ".", "admin", "driver", "relay", "work", "internal/*", "store/postgres", "store/sqlite"}, tests: with(helpers, "sink/discard")},
	{room: "internal/drivers", named: true, may: []string{".", "admin", "driver", "internal/*", "internal/natsserver", "internal/msk", "store/*", "store/postgres/adopt", "sink/*"}, tests: helpers},
	{room: "internal/terminal", named: true, may: []string{".", "admin", "driver", "internal/*", "store/sqlite"}, tests: helpers}, // shared by command lines
	// A whole NATS server. Programs with sink/nats do not contain it.
	{room: "internal/natsserver", named: true, may: []string{".", "admin", "driver", "internal/*", "sink/nats"}, tests: helpers},
	// Credentials of AWS. Programs with sink/kafka do not contain the SDK.
	{room: "internal/msk", named: true, may: []string{".", "driver", "internal/*", "sink/kafka"}, tests: helpers},
	// The ledger, next to the relay. It is not the memory of a store.
	{room: "internal/inflight", named: true, may: []string{".", "driver"}, tests: helpers},
	{room: "internal/*", may: []string{".", "admin", "driver", "internal/*"}, tests: helpers},

	// The program. Its own rooms, from its servers and workers up to its verbs.
	{room: program + "ingest", may: []string{".", "admin", "driver", "writer", "internal/*", program + "about", program + "lines"}, tests: with(helpers, "store/*")},
	{room: program + "console", may: []string{".", "admin", "driver", "internal/*", "internal/terminal", program + "resend"}, tests: with(helpers, "store/*", "store/postgres/adopt")},
	{room: program + "config", may: []string{self, ".", "admin", "driver", "internal/*", "internal/drivers", "relay", "store/*", "sink/*"}, tests: helpers},
	{room: program + "run", may: with(wiring, program+"config", program+"ingest", program+"about"), tests: helpers},
	{room: program + "demo", may: wiring, tests: helpers},
	{room: program + "cli", named: true, may: with(wiring, "internal/terminal", program+"*"), tests: helpers},
	{room: program + "check", may: []string{".", "internal/*", "internal/terminal"}, tests: helpers},
	{room: program + "*", may: []string{".", "admin", "driver", "internal/*", program + "*"}, tests: helpers},
	{room: "cmd/penstock/systemtest", may: with(wiring, program+"demo", "internal/natsserver"), tests: helpers},
	{room: "cmd/penstock", may: with(wiring, "internal/terminal", program+"*", program+"cli", "docs"), tests: helpers},
	// The pages of the commands are the program's --help.
	{room: "docs", named: true},

	// Measurements and proofs: a module that imports the other, and that the other does not import.
	{room: lab, named: true, may: with(wiring, "internal/test", "internal/terminal", "internal/natsserver")},

	{room: "penstocktest", named: true, may: []string{".", "admin", "driver", "work", "store/postgres"}, tests: with(helpers, "store/*")},
	{room: "clients", named: true, may: wiring, tests: helpers},
	{room: "examples", may: wiring, tests: helpers},
}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }

// roomOf returns the row of a folder.
func roomOf(folder string) (row, bool) {
	i := slices.IndexFunc(rooms, func(r row) bool { return within(folder, r.room) })
	if i < 0 {
		return row{}, false
	}
	return rooms[i], true
}

// objection explains why a file of folder must not import the folder target, both
// of ours; empty if it may.
func objection(folder string, isTest bool, target string) string {
	from, known := roomOf(folder)
	if !known {
		return "no room for the folder " + folder + ": add one to internal/test/archtest"
	}
	allowed := from.may
	if isTest {
		allowed = with(from.may, from.tests...)
	}
	to, _ := roomOf(target)
	for _, a := range allowed {
		if a == self {
			a = matched(folder, from.room)
		}
		if within(target, a) && (!to.named || a == to.room) {
			return ""
		}
	}
	if isTest || !to.named {
		return folder + " must not import " + target
	}
	return folder + " must not import " + target + " but in tests, if at all"
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
		if ok, _ := path.Match(p[i], f[i]); !ok {
			return ""
		}
	}
	return path.Join(f[:len(p)]...)
}

func TestImports(t *testing.T) {
	wrong, files := forbidden(t, docblock.Root(t))
	for _, w := range wrong {
		t.Error(w)
	}
	if files < 10 {
		t.Fatalf("only %d Go files: is it the module?", files)
	}
}

// forbidden returns the imports under root that are not allowed.
func forbidden(t *testing.T, root string) (wrong []string, files int) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin" || hasModule(file) && rel != lab) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		files++
		for _, imported := range imports(t, file) {
			target, ours := strings.CutPrefix(imported+"/", module+"/")
			if !ours {
				if path.Dir(rel) == "." && !strings.HasSuffix(rel, "_test.go") && doesIO(imported) {
					wrong = append(wrong, fmt.Sprintf("%s imports %s: the domain is plain Go and does no I/O", rel, imported))
				}
				continue
			}
			if why := objection(path.Dir(rel), strings.HasSuffix(rel, "_test.go"), path.Clean(target)); why != "" {
				wrong = append(wrong, rel+": "+why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return wrong, files
}

// In a workspace Go lets either module import the other.
func TestImportsOfTwoModules(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":                   "module " + module + "\n",
		"lab/go.mod":               "module " + module + "/lab\n",
		"examples/orms/go.mod":     "module " + module + "/examples/orms\n",
		"store/sqlite/store.go":    "package sqlite\n\nimport _ \"" + module + "/lab/plot\"\n",
		"lab/measure/relay.go":     "package measure\n\nimport (\n\t_ \"" + module + "/relay\"\n\t_ \"" + module + "/lab/plot\"\n)\n",
		"lab/measure/config.go":    "package measure\n\nimport _ \"" + module + "/cmd/penstock/internal/config\"\n",
		"examples/orms/ent/ent.go": "package ent\n\nimport _ \"" + module + "/examples/orms/ent/schema\"\n",
	} {
		file = filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"lab/measure/config.go: lab/measure must not import cmd/penstock/internal/config",
		"store/sqlite/store.go: store/sqlite must not import lab/plot but in tests, if at all",
	}
	if wrong, files := forbidden(t, root); !slices.Equal(wrong, want) || files != 3 {
		t.Errorf("of %d files it finds %q", files, wrong)
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

// Tests of the rules: permitted and refused imports.
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
		{"store/sqlite", false, "internal/test/storetest", false},
		{"store/sqlite", true, "internal/test/storetest", true},
		{"store/sqlite", false, "internal/test/queuetest", false},
		{"store/sqlite", true, "internal/test/queuetest", true},
		{"internal/test/queuetest", false, "store/mysql", false},
		{"store/sqlite", true, "store/sqlite", true},
		{"store/sqlite", true, "store/postgres", false},
		{"store/sqlite", false, "relay", false},
		{"sink/nats", false, "internal/natsserver", false},
		{"sink/nats", true, "internal/natsserver", true},
		{"internal/natsserver", false, "sink/nats", true},
		{"sink/nats", false, "sink/rabbitmq", false},
		{"sink/nats", false, "store/sqlite", false},
		{"sink/nats", true, "internal/test/sinktest", true},
		{"relay", false, ".", true},
		{".", false, "driver", false},
		{"admin", false, "driver", false},
		{"driver", false, "admin", true},
		{"relay", false, "internal/template", false},
		{"relay", false, "store/sqlite", false},
		{"relay", true, "store/sqlite", true},
		{"relay", true, "store/postgres", false},
		{"sink/format", false, "sink/nats", false},
		{"sink/format", true, "sink/nats", true},
		{"store/postgres", false, "internal/test/postgrestest", false},
		{"store/postgres/adopt", true, "internal/test/postgrestest", true},
		{"store/postgres/adopt", false, "store/postgres", false},
		{"store/postgres", false, "store/postgres/adopt", false},
		{"lab/chaos", false, "internal/test/testserver", true},
		{"work", false, ".", true},
		{"work", false, "store/sqlite", false},
		{".", false, "work", false},
		{".", false, "internal/template", false},
		{"internal/template", false, ".", true},
		{"internal/template", false, "relay", false},
		{"internal/template", false, "lab/measure", false},
		{"lab/measure", false, "sink/nats", true},
		{"lab/bench", false, "lab/measure", true},
		{"cmd/penstock", true, "lab/measure", false},
		{program + "config", false, "sink/nats", true},
		{program + "config", false, program + "cli", false},
		{program + "console", false, "sink/nats", false},
		{program + "cli/relay", false, program + "run", true},
		{"cmd/penstock", false, "relay", true},
		{"cmd/penstock", false, "internal/test/testserver", false},
		{"cmd/penstock", true, "internal/test/testserver", true},
		{"internal/test/testserver/withservers", false, "internal/test/testserver", true},
		{"somewhere/new", false, ".", false},
	} {
		if why := objection(c.folder, c.test, c.target); (why == "") != c.ok {
			t.Errorf("%s (test: %v) importing %s: %q, want allowed = %v", c.folder, c.test, c.target, why, c.ok)
		}
	}
}

// builtWith are the folders whose importers contain a library, by a part of its path.
var builtWith = map[string][]string{
	"/nats-server/":    {"cmd", lab, "internal/drivers", "internal/natsserver"},
	"/aws-sdk-go-v2/":  {"cmd", lab, "internal/drivers", "internal/amazon", "internal/msk", "internal/test/awstest", "sink/sqs", "sink/sns", "sink/claimcheck/s3"},
	"/service/s3":      {"cmd", lab, "internal/drivers", "sink/claimcheck/s3"},
	"go/pubsub/v2/":    {"cmd", lab, "internal/drivers", "internal/test/pubsubtest", "sink/pubsub"},
	"/Azure/go-amqp":   {"cmd", lab, "internal/drivers", "sink/amqp1"},
	"/redis/go-redis/": {"cmd", lab, "internal/drivers", "sink/redis"},
}

// A program with sink/nats does not contain a server, through any import. A program that publishes or works
// contains no client of a broker that it does not use.
func TestLibrariesInPrograms(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{.Deps}}", module+"/...")
	list.Stderr = t.Output()
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	folders, with := 0, map[string]int{}
	for line := range strings.Lines(string(out)) {
		imported, deps, _ := strings.Cut(line, " ")
		folder := path.Clean(strings.TrimPrefix(imported+"/", module+"/"))
		folders++
		for library, may := range builtWith {
			if !strings.Contains(deps, library) {
				continue
			}
			with[library]++
			if !slices.ContainsFunc(may, func(room string) bool { return within(folder, room) }) {
				t.Errorf("%s is built with %s", folder, library)
			}
		}
	}
	for library := range builtWith {
		if with[library] < 2 {
			t.Errorf("only %d folders have %s: is it the module?", with[library], library)
		}
	}
	if folders < 50 {
		t.Errorf("%d folders: is it the module?", folders)
	}
}

// Each function of these packages has an example, except those of families (Is…, Validate…, Last…, …Delay).
func TestEachFunctionOfUsersHasAnExample(t *testing.T) {
	root := docblock.Root(t)
	for _, folder := range []string{".", "work", "relay", "writer"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(files) < 5 {
			t.Fatalf("%d files in %s, %v", len(files), folder, err)
		}
		var code, examples strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				examples.Write(text)
			} else {
				code.Write(text)
			}
		}
		for _, found := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)`).FindAllStringSubmatch(code.String(), -1) {
			name := found[1]
			family := slices.ContainsFunc([]string{"Is", "Validate", "Last"}, func(p string) bool { return strings.HasPrefix(name, p) }) || strings.HasSuffix(name, "Delay")
			if !family && !strings.Contains(examples.String(), "func Example"+name+"(") {
				t.Errorf("%s of %s has no Example", name, folder)
			}
		}
	}
}

// A package that a program may import, and that has something to call, has an example, and so has
// a suite.
func TestEachPublicPackageHasAnExample(t *testing.T) {
	root := docblock.Root(t)
	shown := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, file)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); file != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"internal", "cmd", "clients", "docs", "examples", "cmd/penstock/systemtest", "testdata", "node_modules", "bin"}, name) || hasModule(file)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		folder := path.Dir(rel)
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		shown[folder] = shown[folder] || strings.HasSuffix(rel, "_test.go") && strings.Contains(string(text), "\nfunc Example")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, has := range shown {
		if !has {
			t.Errorf("%s has no Example", folder)
		}
	}
	if len(shown) < 15 {
		t.Errorf("only %d packages under %s", len(shown), root)
	}
}
