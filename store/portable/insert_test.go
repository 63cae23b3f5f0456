package portable_test

import (
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/store/portable"
)

// What a plain INSERT writes is refused, or it is read: none keeps others from being read.
func TestPlainInserts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	conn, err := pgx.Connect(t.Context(), f.url)
	f.must(err)
	defer func() { _ = conn.Close(t.Context()) }()
	src := f.subscribe()
	for _, table := range []string{"outbox_orders", "queue_jobs"} {
		insert := func(columns, values string) error {
			_, err := conn.Exec(t.Context(), "insert into penstock_portable."+table+" (payload, "+columns+") values ('', "+values+")")
			return err
		}
		for _, wrong := range [][2]string{{"headers", "'[]'"}, {"headers", "'null'"}, {"headers", `'"a"'`}, {"key", "repeat('k', 1025)"}} {
			if err := insert(wrong[0], wrong[1]); pgerror.State(err) != "23514" {
				t.Errorf("%s: %s %s: %v, want 23514", table, wrong[0], wrong[1], err)
			}
		}
		f.must(insert("key, headers", `repeat('k', 1024), '{"text": "a", "number": 1, "object": {"a": [true]}}'`))
		// As a table of an earlier version has it.
		exec(t, f.url, "alter table penstock_portable."+table+" drop constraint "+table+"_headers_check")
		f.must(insert("headers", "'[1]'"))
	}
	b, err := src.Fetch(t.Context(), plenty)
	f.must(err)
	jobs, err := f.store.Queue("jobs").Claim(t.Context(), driver.Claim{Jobs: 10, Lease: time.Hour})
	f.must(err)
	if len(b.Messages) != 2 || len(jobs) != 2 {
		t.Fatalf("got %d messages and %d jobs, want 2 of each", len(b.Messages), len(jobs))
	}
	want := map[string]string{"text": "a", "number": "1", "object": `{"a": [true]}`}
	if !maps.Equal(b.Messages[0].Headers, want) || !maps.Equal(jobs[0].Headers, want) || b.Messages[1].Headers != nil || jobs[1].Headers != nil {
		t.Errorf("headers are %v and %v, then %v and %v", b.Messages[0].Headers, jobs[0].Headers, b.Messages[1].Headers, jobs[1].Headers)
	}
}
