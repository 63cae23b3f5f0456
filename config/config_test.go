package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// readTestdata reads what testdata has, and one file that is too large for it.
func readTestdata(path string) ([]byte, error) {
	if filepath.Base(path) == "large" {
		return make([]byte, maxSecretFile+1), nil
	}
	return readLimited(path)
}

var loader = Loader{LookupEnv: lookup, ReadFile: readTestdata}

// Each bad file has one mistake (but for many.bad.yaml), and beside it the
// message that the user sees.
func TestBadFiles(t *testing.T) {
	for _, file := range glob(t, "*.bad.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := loader.Load(file)
			if err == nil {
				t.Fatalf("no error; got\n%v", c)
			}
			var es Errors
			if !errors.As(err, &es) || len(es) == 0 {
				t.Fatalf("%T is not an Errors", err)
			}
			if !strings.HasSuffix(file, "many.bad.yaml") && len(es) > 2 {
				t.Errorf("%d errors for one mistake", len(es))
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password shows")
			}
			golden(t, strings.TrimSuffix(file, "yaml")+"txt", strings.ReplaceAll(err.Error(), "testdata/", "")+"\n")
		})
	}
}

// Each good file has beside it what it is printed as.
func TestGoodFiles(t *testing.T) {
	for _, file := range glob(t, "*.good.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := loader.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, "yaml")+"txt", c.String())
			if strings.Contains(c.String(), "hunter2") {
				t.Errorf("the password shows")
			}
		})
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in testdata: %v", pattern, err)
	}
	return files
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run with -update to make it", err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
