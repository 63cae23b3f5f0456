package postgres_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/store/postgres"
)

var (
	docBlock    = regexp.MustCompile("(?s)```sql\n(.*?)```")
	docFunction = regexp.MustCompile("(?m)^\\| `([a-z_]+)\\(([a-z_, ]*)\\)` ")
)

// docs/guides/queues.md tells what works: its statements run, one after the other, and its
// functions take the arguments that it names.
func TestQueueDocs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	text, err := os.ReadFile("../../docs/guides/queues.md")
	f.Must(err)
	role, _ := f.role()
	blocks := docBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d blocks of SQL found", len(blocks))
	}
	for _, b := range blocks {
		if _, err := f.Conn.PgConn().Exec(f.Ctx, strings.NewReplacer("'shop'", "'"+role+"'", "1234567", "(select lease from penstock._lease limit 1)").Replace(b[1])).ReadAll(); err != nil {
			t.Errorf("%s: %v", b[1], err)
		}
	}
	functions := docFunction.FindAllStringSubmatch(string(text), -1)
	if len(functions) < 20 {
		t.Fatalf("%d functions found", len(functions))
	}
	for _, m := range functions {
		var found bool
		f.Must(f.Conn.QueryRow(f.Ctx, `select exists (select from pg_proc p where p.pronamespace = 'penstock'::regnamespace and p.proname = $1
			and p.proargnames[1:p.pronargs] = string_to_array($2, ', '))`, m[1], m[2]).Scan(&found))
		if !found {
			t.Errorf("there is no function %s(%s)", m[1], m[2])
		}
	}
}
