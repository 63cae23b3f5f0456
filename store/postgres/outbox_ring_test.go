package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// small is a ring whose segments are full after some 300 messages.
var small = postgres.Options{Segments: 3, SegmentBytes: 64 << 10}

func (f *fixture) fill(n int) {
	f.Exec("insert into penstock.orders (key, payload) select 'k', convert_to(repeat('x', 200), 'UTF8') from generate_series(1, $1)", n)
}

func (f *fixture) slots() (current, segments int64) {
	return f.Number(`select pg_sequence_last_value('penstock."_orders.slot"')`), f.Number("select count(*) from penstock._segments('orders')")
}

func TestRingIsReused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	seen := map[int64]bool{}
	for range 20 {
		f.fill(400)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		if n := len(f.drain(src)); n != 400 {
			t.Fatalf("got %d messages, want 400", n)
		}
		current, _ := f.slots()
		seen[current] = true
	}
	if _, segments := f.slots(); segments != 3 || len(seen) != 3 {
		t.Errorf("%d segments, and the pointer was on %d of them; want 3 of 3", segments, len(seen))
	}
}

// When every segment is held, the last one takes what comes, and all of them are
// given back afterwards.
func TestRingIsFull(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	for range 8 {
		f.fill(400)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
	}
	if _, segments := f.slots(); segments != 3 {
		t.Errorf("the ring has %d segments, want the 3 it was made with", segments)
	}
	if n := len(f.drain(src)); n != 3200 {
		t.Fatalf("got %d messages, want 3,200", n)
	}
	f.Eventually("all but the current segment is empty", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.Number("select count(*) from penstock._segments('orders') where pg_relation_size(oid) > 0") <= 1
	})
}

// A backlog gives back a segment once that is settled, not when all of it is.
func TestSettledPartOfABacklogIsGivenBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	for range 2 {
		f.fill(400)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
	}
	last := f.Number("select max(seq) from penstock.orders where slot = 0")
	for settled := int64(0); settled < last; {
		b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
		f.Must(err)
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		settled = b.Messages[len(b.Messages)-1].Seq
	}
	f.Eventually("the first segment is given back", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.Number(`select pg_relation_size('penstock."_orders.0"')`) == 0
	})
	if n := len(f.drain(src)); n == 0 {
		t.Error("the whole backlog was settled")
	}
}

// Retention by size keeps the latest messages, also where the ring has begun anew: the oldest segment goes, and not the
// first.
func TestOldestSegmentGoesFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{Segments: 5})
	src := f.subscribe()
	f.insert(f.Conn, "k", "0")
	for i := 1; i < 5; i++ {
		f.Exec("select penstock._rotate('orders', true)")
		f.insert(f.Conn, "k", fmt.Sprint(i))
	}
	f.drain(src)
	for _, slot := range []int{0, 2} { // which are written to again
		f.Exec("select penstock._reclaim('orders', $1)", slot)
	}
	for _, payload := range []string{"new", "newest"} {
		f.Exec("select penstock._rotate('orders', true)")
		f.insert(f.Conn, "k", payload)
	}
	f.drain(src)
	f.Must(f.store.SetRetention(f.Ctx, "orders", admin.Retention{Bytes: f.Number("select sum(pg_total_relation_size(oid)) - 1 from penstock._segments('orders')")}))
	f.Eventually("one segment is given back", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.Number("select count(*) from penstock.orders") < 5
	})
	f.wantText("3 4 new newest", "select string_agg(convert_from(payload, 'UTF8'), ' ' order by seq) from penstock.orders")
}

// A writer that is open holds its segment and no other.
func TestOpenWriterHoldsOnlyItsSegment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	writer := f.Connect()
	tx, err := writer.Begin(f.Ctx)
	f.Must(err)
	f.insert(writer, "late", "late")
	held, _ := f.slots()
	for range 10 {
		f.fill(400)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		f.drain(src)
	}
	if n := f.Number(fmt.Sprintf(`select pg_relation_size('penstock."_orders.%d"')`, held)); n == 0 {
		t.Error("the open writer's segment was truncated")
	}
	f.Must(tx.Commit(f.Ctx))
	f.Exec(fmt.Sprintf("select penstock._reclaim('orders', %d)", held)) // the cursor has passed the message, and no relay has read it
	f.wantDrain(src, "late")
	f.Eventually("its segment is reclaimed", func() bool {
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		return f.Number(fmt.Sprintf(`select pg_relation_size('penstock."_orders.%d"')`, held)) == 0
	})
}

// A transaction that has published continues to publish while the ring turns.
func TestPublishWhileTheRingTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	writer := f.Connect()
	tx, err := writer.Begin(f.Ctx)
	f.Must(err)
	var want []string
	for i := range 6 {
		f.insert(writer, "long", fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
		f.fill(400)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		f.drain(src)
	}
	f.Must(tx.Commit(f.Ctx))
	f.wantDrain(src, want...)
}

// A writer that read the pointer before it moved inserts into a segment that has
// been truncated since; its row is found and outlives the next reclaim.
func TestInsertBehindThePointer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	f.Exec("select penstock._rotate('orders', true)")
	f.Exec("insert into penstock.orders (slot, key, payload) values (0, 'k', 'behind')")
	f.Exec("select penstock._reclaim('orders', 0)")
	f.wantDrain(src, "behind")
	if f.Number("select penstock._reclaim('orders', 0)::int") != 1 {
		t.Error("the settled row was not reclaimed")
	}
}

// A commit between the look into a segment and its lock is also seen. The lock waits as long as it takes here.
func TestReclaimLooksAgainUnderItsLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	src := f.subscribe()
	f.Exec("alter function penstock._reclaim(text, int) set lock_timeout = 0")
	f.Exec("select penstock._rotate('orders', true)")
	writer, maintenance := f.Connect(), f.Connect()
	tx, err := writer.Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "insert into penstock.orders (slot, key, payload) values (0, 'k', 'behind')")
	f.Must(err)
	done := make(chan error, 1)
	go func() {
		_, err := maintenance.Exec(f.Ctx, "select penstock._reclaim('orders', 0)")
		done <- err
	}()
	f.Eventually("it waits for the writer", func() bool {
		return f.Number(`select count(*) from pg_locks where relation = 'penstock."_orders.0"'::regclass and mode = 'AccessExclusiveLock' and not granted`) == 1
	})
	f.Must(tx.Commit(f.Ctx))
	f.Must(<-done)
	f.wantDrain(src, "behind")
}

// The cursor log is also a ring: rotated, it keeps every subscription's head.
func TestCursorLogIsReclaimed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "one")
	f.wantDrain(src, "one")
	// What years of settling leave: rows of epochs that are past.
	f.Exec(`insert into penstock._cursor (subscription, epoch, lease_until, since, low, settled, system, holder, done)
		select subscription, 0, lease_until, since, 0, 0, system, repeat('x', 100), done from penstock._cursor, generate_series(1, 20000)`)
	big := f.Number(`select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'penstock._cursor'::regclass`)
	f.Eventually("the cursor log is small", func() bool {
		f.Exec("select penstock._reclaim_cursor()")
		return f.Number(`select sum(pg_total_relation_size(inhrelid)) from pg_inherits where inhparent = 'penstock._cursor'::regclass`) < big/10
	})
	f.wantDrain(src)
	f.insert(f.Conn, "k", "two")
	f.wantDrain(src, "two")
	f.Must(src.Close(f.Ctx))
	src = f.subscribe()
	f.wantDrain(src)
}

// On the hot path nothing is updated or deleted: no dead row can be left that a
// later scan must step over.
func TestHotPathLeavesNoDeadRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	defer pin(t, f.URL)()
	src := f.subscribe()
	const rounds = 30
	for range rounds {
		f.fill(200)
		f.Must(f.store.Maintain(f.Ctx, "orders"))
		f.drain(src)
		f.Must(src.Renew(f.Ctx))
	}
	const stats = ` from pg_stat_user_tables where schemaname = 'penstock' and relname <> '_migration'`
	f.Eventually("the statistics are complete", func() bool {
		return f.Number("select coalesce(sum(n_tup_ins), 0)"+stats+" and relname like '%orders%'") >= 200*rounds
	})
	if n := f.Number("select sum(n_tup_upd + n_tup_del)" + stats); n != 0 {
		t.Errorf("%d rows were updated or deleted", n)
	}
}

// Plans go by the indexes, whatever the statistics say.
func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	check := func(when string) {
		t.Helper()
		for name, plan := range f.plans() {
			if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Bitmap") {
				t.Errorf("%s, %s scans a table:\n%s", when, name, plan)
			}
			if !strings.Contains(plan, "Merge Append") {
				t.Errorf("%s, %s does not merge the segments in order:\n%s", when, name, plan)
			}
			for _, cond := range []string{`Index Cond: \(+seq >`, `Index Cond: \(+xid = x`} {
				if !regexp.MustCompile(cond).MatchString(plan) {
					t.Errorf("%s, %s has no %q:\n%s", when, name, cond, plan)
				}
			}
		}
	}
	check("never analyzed")
	f.Exec("analyze")
	check("analyzed when empty")
	f.fill(50_000)
	check("filled since")
	f.Exec("analyze")
	check("analyzed when full")
}

// plans explains the reader's statements with the reader's settings.
func (f *fixture) plans() map[string]string {
	f.Helper()
	conn := f.Connect()
	_, err := conn.Exec(f.Ctx, postgres.Settings)
	f.Must(err)
	plans := map[string]string{}
	for name, params := range map[string]string{
		"poll": "(0, '{5,6}', '7:9:7', 100, 1)",
		"page": "(0, '{5,6}', '7:9:7', 0, '9:9:', 1000000, 100)",
	} {
		_, err := conn.Exec(f.Ctx, "prepare "+name+" as "+postgres.Statement(name, "penstock", "orders"))
		f.Must(err)
		rows, err := conn.Query(f.Ctx, "explain execute "+name+params)
		f.Must(err)
		var plan strings.Builder
		for rows.Next() {
			var line string
			f.Must(rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		f.Must(rows.Err())
		plans[name] = plan.String()
	}
	return plans
}
