package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The locks of a server are few, and all its databases share them.
func TestDedupKeysTakeFewLocks(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	for _, enqueue := range []string{
		"select penstock.enqueue_many('q', array_fill('x'::text, array[20000]), dedup_keys => array(select i::text from generate_series(1, 20000) i))",
		"select penstock.enqueue('q', 'x', dedup_key => 'single ' || i) from generate_series(1, 3000) i",
	} {
		f.Exec("begin")
		f.Exec(enqueue)
		if n := f.Number("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"); n > 1200 {
			t.Errorf("%s: %d locks", enqueue, n)
		}
		f.Exec("commit")
	}
	f.wantText("23000", "select count(*)::text from penstock.q")
}

// Whether a transaction has many keys or one, and so holds other locks: of two with the same one the second waits.
func TestDedupOfManyAndOfOne(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const keys = 150
	many := "select unnest($1::text[]), penstock.enqueue_many('q', array_fill('x'::text, array[cardinality($1::text[])]), dedup_keys => $1::text[])"
	first := make(map[string]int64)
	var mu sync.Mutex
	var all sync.WaitGroup
	for worker := range 6 {
		all.Go(func() {
			conn, err := pgx.Connect(f.Ctx, f.URL)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(f.Ctx)
			for from := 0; from < keys; {
				n := []int{keys, 7, 1}[worker%3]
				names := make([]string, 0, n)
				for i := from; i < min(from+n, keys); i++ {
					names = append(names, fmt.Sprint("key ", i))
				}
				rows, err := conn.Query(f.Ctx, many, names)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
					Key string
					ID  int64
				}])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, g := range got {
					if id, there := first[g.Key]; there && id != g.ID {
						t.Errorf("%s is job %d and job %d", g.Key, id, g.ID)
					}
					first[g.Key] = g.ID
				}
				mu.Unlock()
				from += n
			}
		})
	}
	all.Wait()
	if n := len(first); n != keys {
		t.Errorf("%d keys", n)
	}
	f.wantText(fmt.Sprint(keys), "select count(*)::text from penstock.q")
}

// A snapshot that is older than the lock does not show what another has enqueued.
func TestDedupKeyNeedsReadCommitted(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	for _, level := range []string{"repeatable read", "serializable"} {
		for _, enqueue := range []string{
			"penstock.enqueue('q', 'x', dedup_key => 'd')",
			"penstock.enqueue_many('q', '{x}', dedup_keys => '{d}')",
		} {
			f.Exec("begin isolation level " + level)
			f.wantError("25001", "select "+enqueue)
			f.Exec("rollback")
		}
		f.Exec("begin isolation level " + level)
		f.Exec("select penstock.enqueue('q', 'x', key => 'k')")
		f.Exec("select penstock.enqueue_many('q', '{x}', dedup_keys => '{null}')")
		f.Exec("commit")
	}
	f.wantText("4", "select count(*)::text from penstock.q")
}

// SQL in any driver learns whether a job was there already, and is never told about another enqueue than the last.
func TestDeduplicatedInSQL(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	name, asRole := f.role()
	f.Exec("select penstock.grant_enqueuer('q', $1)", name)
	conn, err := pgx.Connect(f.Ctx, asRole)
	f.Must(err)
	defer conn.Close(f.Ctx)
	const (
		once = "select penstock.enqueue('q', 'x', dedup_key => 'k')"
		told = "select coalesce(penstock.deduplicated()::text, 'null')"
		some = "select penstock.enqueue_many('q', array['a', 'b', 'c'], dedup_keys => array[null, 'k', 'new'])"
		each = "select string_agg(coalesce(penstock.deduplicated(n)::text, 'null'), ' ' order by n) from generate_series(0, 4) n"
	)
	for _, step := range []struct{ do, ask, want string }{
		{once, told, "null"}, // it was in another transaction
		{"begin", told, "null"},
		{once, told, "true"},
		{"select penstock.enqueue('q', 'x', dedup_key => 'another')", told, "false"},
		{once, each, "null true null null null"},
		{"select penstock.enqueue('q', 'x')", told, "null"},
		{some, each, "null false true false null"},
		{"select penstock.enqueue_many('q', array['a', 'b'])", each, "null null null null null"},
		{"savepoint s", told, "null"},
		{once, told, "true"},
		{"rollback to s", told, "null"},
		{once, told, "true"},
		{"commit", told, "null"},
		{"set search_path = penstock", "select deduplicated()::text from enqueue('q', 'x', dedup_key => 'k')", "true"},
		{"select", "select string_agg(deduplicated(e.n)::text, ' ' order by e.n) from enqueue_many('q', array['a', 'b', 'c'], dedup_keys => array['k', 'l', 'l']) with ordinality e(id, n)",
			"true false true"},
	} {
		if _, err := conn.Exec(f.Ctx, step.do); err != nil {
			t.Fatalf("%s: %v", step.do, err)
		}
		var got string
		if err := conn.QueryRow(f.Ctx, step.ask).Scan(&got); err != nil || got != step.want {
			t.Errorf("after %s: deduplicated is %s (%v), want %s", step.do, got, err, step.want)
		}
	}
}
