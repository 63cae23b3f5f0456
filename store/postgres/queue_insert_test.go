package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Who enqueues with a plain INSERT is told what is wrong as who calls enqueue is.
func TestInsertOfABadJob(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	for _, c := range []struct{ code, columns, values string }{
		{"23514", "payload", "repeat('x', 67108865)::bytea"},
		{"23514", "payload, key", "'x', repeat('k', 1025)"},
		{"23514", "payload, key", "'x', repeat('ü', 513)"},
		{"23514", "payload, group_key", "'x', repeat('g', 257)"},
		{"23514", "payload, group_key, key", "'x', repeat('g', 257), 'k'"},
		{"23514", "payload, priority", "'x', 16"},
		{"23514", "payload, priority", "'x', -17"},
		{"23514", "payload, headers", "'x', '[]'"},
		{"23514", "payload, headers", "'x', 'null'"},
		{"23514", "payload, headers", "'x', jsonb_build_object('a', repeat('h', 65536))"},
		{"23514", "payload, headers", "'x', jsonb_build_object(repeat('h', 65536), 'a')"},
		{"22023", "payload", "null"},
		{"22023", "payload, key", "null, 'k'"},
		{"22023", "payload, group_key", "'x', null"},
		{"22023", "payload, priority", "'x', null"},
		{"22023", "payload, priority, key", "'x', null, 'k'"},
	} {
		_, err := f.Conn.Exec(f.Ctx, "insert into penstock.q ("+c.columns+") values ("+c.values+")")
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != c.code || pg.Hint == "" {
			t.Errorf("(%s) = (%s): got %+v, want %s and a hint", c.columns, c.values, err, c.code)
		}
	}
	f.wantText("0", "select count(*)::text from penstock.q")
	f.Exec("insert into penstock.q (payload, key, group_key, priority, headers) values ('', repeat('k', 1024), repeat('g', 256), -16, '{}'), ('', null, repeat('g', 256), 15, null)")
	if got := f.claimOn(f.Conn, 9, strings.Repeat("g", 256)); len(got) != 2 {
		t.Errorf("claimed %v, want the two that are just within the limits", got)
	}
}

// Keys and priorities count from the first job that has one, however it was enqueued.
func TestInsertedKeysAndPriorities(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		f := newJobs(t, ordering)
		f.Exec("insert into penstock.q (payload) values ('x')")
		f.wantClaim(9, 1)
		f.Exec("insert into penstock.q (payload, key) values ('x', 'k'), ('x', 'k')")
		tx := f.begin(f.Connect())
		if got := f.claimOn(tx, 9, ""); len(got) != 1 || got[0].id != 2 {
			t.Errorf("%s: claimed %v, want job 2 alone", ordering, got)
		}
		f.wantClaim(9)
		f.Must(tx.Commit(f.Ctx))
		f.wantClaim(9)
		f.Exec("insert into penstock.q (payload, priority) values ('x', 1), ('x', 0), ('x', -1)")
		for _, next := range []int64{6, 5, 4} {
			f.wantClaim(1, next)
		}
	}
}

// The first job of a priority raises a flag next to that of the pause, which stays.
func TestFirstOfAPriorityWhilePaused(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.pause_queue('q')")
	f.Exec("insert into penstock.q (priority, key, payload) values (3, 'k', 'x')")
	if n := f.Number("select count(*) from penstock.claim('q', 10, '1 hour')"); n != 0 {
		t.Errorf("%d jobs were claimed of a paused queue", n)
	}
	f.Exec("select penstock.resume_queue('q')")
	if n := f.Number("select count(*) from penstock.claim('q', 10, '1 hour')"); n != 1 {
		t.Errorf("%d of 1 job was claimed", n)
	}
}
