package postgres_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A reader of a statement has to keep its parameters in mind.
func TestStatementsHaveFewParameters(t *testing.T) {
	t.Parallel()
	const most = 20
	parameter := regexp.MustCompile(`[@$]\w+`)
	comment := regexp.MustCompile(`--.*`)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	adopt, _ := filepath.Glob("adopt/sql/*.sql")
	for _, name := range append(files, adopt...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, p := range parameter.FindAllString(comment.ReplaceAllString(string(text), ""), -1) {
			found[p] = true
		}
		if len(found) > most {
			t.Errorf("%s has %d parameters, want at most %d: a jsonb can hold several", name, len(found), most)
		}
	}
}
