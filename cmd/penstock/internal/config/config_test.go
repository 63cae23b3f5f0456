package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/drivers"
)

var update = flag.Bool("update", false, "write what the tests get into testdata as what they expect")

// env is the environment of every test.
var env = map[string]string{
	"PENSTOCK_DATABASE_URL": "postgres://app:hunter2@db.example/shop",
	"NATS_PASSWORD":         "hunter2",
	"DB_PASSWORD":           "hunter2",
	"SENDERS":               "4",
	"EMPTY":                 "",
	"BINARY":                "a\xff",
	"INJECTION":             "a\n    sink: discard\nschema: other",
}

func lookup(name string) (string, bool) {
	v, ok := env[name]
	return v, ok
}

// readTestdata reads the files of testdata, and one file that is too large.
func readTestdata(path string) ([]byte, error) {
	if filepath.Base(path) == "large" {
		return make([]byte, maxSecretFile+1), nil
	}
	return readLimited(path)
}

var loader = Loader{LookupEnv: lookup, ReadFile: readTestdata}

// testFile is a file of an archive in testdata. The format is txtar: the name in a separate line,
// then the content.
type testFile struct{ archive, name, text string }

var testFileHeader = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

// testFiles are the files whose names have that ending.
func testFiles(t testing.TB, suffix string) (found []testFile) {
	t.Helper()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, archive := range archives {
		data, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		headers := testFileHeader.FindAllStringSubmatchIndex(text, -1)
		for i, h := range headers {
			end := len(text)
			if i+1 < len(headers) {
				end = headers[i+1][0]
			}
			if name := text[h[2]:h[3]]; strings.HasSuffix(name, suffix) {
				found = append(found, testFile{archive, name, text[h[1]:end]})
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no %s in testdata", suffix)
	}
	return found
}

// readTestFile reads the file of that name.
func readTestFile(t testing.TB, name string) string {
	t.Helper()
	for _, f := range testFiles(t, name) {
		if f.name == name {
			return f.text
		}
	}
	t.Fatalf("no %s in testdata; run with -update to make it", name)
	return ""
}

func (f *testFile) load() (*Config, error) {
	return loader.LoadBytes("testdata/"+f.name, []byte(f.text))
}

// Each bad file has one mistake (except many.bad.yaml), and next to it is the message that the
// user sees.
func TestBadFiles(t *testing.T) {
	for _, file := range testFiles(t, ".bad.yaml") {
		t.Run(file.name, func(t *testing.T) {
			c, err := file.load()
			if err == nil {
				t.Fatalf("no error; got\n%v", c)
			}
			var es Errors
			if !errors.As(err, &es) || len(es) == 0 {
				t.Fatalf("%T is not an Errors", err)
			}
			if file.name != "many.bad.yaml" && len(es) > 2 {
				t.Errorf("%d errors for one mistake", len(es))
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password shows")
			}
			// A new sink changes none of the files.
			_, unknown := drivers.ParseSink("")
			wrong, _ := errors.AsType[*penstock.FieldError](unknown)
			usages := strings.TrimPrefix(wrong.Hint, "write ")
			text := strings.NewReplacer("testdata/", "", usages, "(the list of sinks)", drivers.OneOf(drivers.SinkNames()), "(the list of sinks)").Replace(err.Error())
			golden(t, file, text+"\n")
		})
	}
}

// Next to each good file is its printed form.
func TestGoodFiles(t *testing.T) {
	for _, file := range testFiles(t, ".good.yaml") {
		t.Run(file.name, func(t *testing.T) {
			c, err := file.load()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file, c.String())
			if strings.Contains(c.String(), "hunter2") {
				t.Errorf("the password shows")
			}
		})
	}
}

// golden compares with the expected output next to a file: NAME.txt for NAME.yaml.
func golden(t *testing.T, file testFile, got string) {
	t.Helper()
	if *update {
		data, err := os.ReadFile(file.archive)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, _ := strings.Cut(string(data), "-- "+file.name+" --\n"+file.text)
		if at := testFileHeader.FindStringIndex(rest); at != nil && at[0] == 0 && strings.HasSuffix(rest[:at[1]], ".txt --\n") { // the old one
			rest = rest[at[1]:]
			if next := testFileHeader.FindStringIndex(rest); next != nil {
				rest = rest[next[0]:]
			} else {
				rest = ""
			}
		}
		text := before + "-- " + file.name + " --\n" + file.text + "-- " + strings.TrimSuffix(file.name, "yaml") + "txt --\n" + got + rest
		if err := os.WriteFile(file.archive, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := readTestFile(t, strings.TrimSuffix(file.name, "yaml")+"txt"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
