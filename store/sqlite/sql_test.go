package sqlite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Each statement that is asked for by name has a file, and each file is asked for.
func TestStatementsAreThere(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	sources, _ := filepath.Glob("*.go")
	shared, _ := filepath.Glob("../../internal/tables/*.go")
	for _, source := range sources {
		text, err := os.ReadFile(source)
		must(t, err)
		for _, m := range regexp.MustCompile(`statement\("(\w+)"\)`).FindAllStringSubmatch(string(text), -1) {
			asked[m[1]] = true
			if _, err := os.Stat("sql/" + m[1] + ".sql"); err != nil {
				t.Errorf("%s: %v", source, err)
			}
		}
	}
	for _, source := range append(sources, shared...) {
		text, err := os.ReadFile(source)
		must(t, err)
		for _, m := range regexp.MustCompile(`"([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
			asked[m[1]] = true
		}
	}
	files, _ := filepath.Glob("sql/*.sql")
	for _, file := range files {
		name := filepath.Base(file)
		if inbox, _ := filepath.Match("inbox_*", name); !inbox && !asked[name[:len(name)-len(".sql")]] {
			t.Errorf("%s is in no statement", file)
		}
	}
}
