package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// database is an empty schema of a real server.
func database(t *testing.T) Setup {
	t.Helper()
	url := testserver.Database(t, testserver.PostgresURL(t))
	name := fmt.Sprintf("bench_%08x", rand.Uint32())
	db := Setup{URL: url, Schema: name, Name: name, Progress: func(text string) { t.Log(text) }}
	store, err := postgres.Open(t.Context(), db.URL, postgres.Options{Schema: db.Schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkTablesGone(t, db) })
	db.Store = store
	return db
}

// checkTablesGone: a run drops its objects.
func checkTablesGone(t *testing.T, db Setup) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), db.URL)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	rows, _ := conn.Query(context.Background(), "select relname from pg_class where relname like $1", "%"+db.Name+"%")
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	var remembered int
	err = conn.QueryRow(context.Background(), "select count(*) from "+pgx.Identifier{db.Schema, "_adopt_subscription"}.Sanitize()).Scan(&remembered)
	if err != nil || remembered > 0 {
		t.Errorf("%d adopted tables are remembered, %v", remembered, err)
	}
}

// with is what is usual, but for some of it.
func with[C any](usual C, change func(*C)) C {
	change(&usual)
	return usual
}
