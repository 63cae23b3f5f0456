package portable_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Whatever isolation level sessions begin with, nothing is claimed twice and nothing fails.
func TestQueueIsolated(t *testing.T) {
	t.Parallel()
	if e := engine(t, testserver.PostgresURL(t)); e != "PostgreSQL" {
		t.Skip(e, "has a level of its own")
	}
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			queue := queues(func(t testing.TB, direct string) string {
				name := direct[strings.LastIndex(direct, "/")+1:]
				name, _, _ = strings.Cut(name, "?")
				exec(t, direct, "alter database "+pgx.Identifier{name}.Sanitize()+" set default_transaction_isolation = '"+level+"'")
				return direct
			})
			queue.Only, queue.Groups = queuetest.Isolated, []string{"Key", "Settings", "Load"}
			queuetest.Run(t, queue)
		})
	}
}
