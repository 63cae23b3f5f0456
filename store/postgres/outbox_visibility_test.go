package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// A transaction that runs and has the highest xid of all is in no snapshot's list of transactions
// in flight: it is >= xmax. Its seq is below what the sequence stands at when the snapshot is
// taken, so the sequence's value does not bound it.
func TestRunningTransactionWithTheHighestXid(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.wantDrain(src)

	late := f.Connect()
	tx, err := late.Begin(f.Ctx)
	f.Must(err)
	f.insert(late, "k", "late") // draws xid and seq
	for range 5 {
		f.wantDrain(src) // snapshots whose xmax is that xid
	}
	f.Must(tx.Commit(f.Ctx))
	f.wantDrain(src, "late")

	// The same with cursors written and others committing around it.
	tx, err = late.Begin(f.Ctx)
	f.Must(err)
	f.insert(late, "k", "late again")
	f.wantDrain(src)
	f.Must(src.Renew(f.Ctx))
	f.wantDrain(src)
	f.insert(f.Conn, "k2", "other")
	f.wantDrain(src, "other")
	f.Must(src.Renew(f.Ctx))
	f.wantDrain(src)
	f.Must(tx.Commit(f.Ctx))
	f.wantDrain(src, "late again")
}

// The same at the edge of a window that is paged through.
func TestLateCommitAroundAPagedWindow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	late := f.Connect()
	tx, err := late.Begin(f.Ctx)
	f.Must(err)
	f.insert(late, "k", "late")
	for i := range 10 {
		f.insert(f.Conn, "", fmt.Sprint(i))
	}
	var got []string
	for page := range 5 {
		b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 3, Bytes: 1 << 20})
		f.Must(err)
		for _, m := range b.Messages {
			got = append(got, string(m.Payload))
		}
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		if page == 1 {
			f.Must(tx.Commit(f.Ctx))
		}
	}
	if want := "[0 1 2 3 4 5 6 7 8 9 late]"; fmt.Sprint(got) != want {
		t.Fatalf("got %v, want %s", got, want)
	}
}

// A server that crashes hands out xids again that it had not written to its log. A reader that
// continues with a snapshot from before the crash takes the new transactions for old ones that it
// has seen.
func TestXidsComeAgainAfterACrash(t *testing.T) {
	t.Parallel()
	// Nothing but a commit is to bring the log to disk.
	server := testserver.StartPostgres(t, "wal_level = minimal", "max_wal_senders = 0", "autovacuum = off", "wal_writer_delay = 10s", "wal_writer_flush_after = 1GB", "bgwriter_delay = 10s")
	f := fixtureOn(t, server.URL, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "before")
	f.wantDrain(src, "before")
	f.Must(src.Renew(f.Ctx))

	for range 50 { // xids that leave no trace on disk
		f.Exec("begin")
		f.Exec("select pg_current_xact_id()")
		f.Exec("rollback")
	}
	f.wantDrain(src) // a snapshot that knows them as over
	high := f.Number("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
	f.Must(server.Kill())
	f.Must(server.Start())

	f.Conn = f.Connect()
	if again := f.Number("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"); again >= high {
		t.Fatalf("the crash was to take the server back behind xid %d, but it is at %d: this test shows nothing", high, again)
	}
	f.insert(f.Conn, "k", "after 1")
	f.insert(f.Conn, "k", "after 2")
	var got []string
	f.Eventually("the messages after the crash arrive", func() bool {
		b, err := src.Fetch(f.Ctx, plenty)
		if err != nil {
			return false // the old connections
		}
		for _, m := range b.Messages {
			got = append(got, string(m.Payload))
		}
		if len(b.Messages) > 0 {
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		}
		return len(got) > 0 && got[len(got)-1] == "after 2"
	})
	if n := len(got); n < 2 || got[n-2] != "after 1" {
		t.Fatalf("got %q, want both messages after the crash", got)
	}
}

// After a logical restore the stored xids are another cluster's: what was not
// settled is read by seq, nothing is lost, and new messages follow.
func TestRestoreIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	for i := range 5 {
		f.insert(f.Conn, "k", fmt.Sprint("settled ", i))
	}
	f.drain(src)
	inFlight := f.Connect()
	tx, err := inFlight.Begin(f.Ctx)
	f.Must(err)
	f.insert(inFlight, "late", "in flight at the cursor")
	for i := range 5 {
		f.insert(f.Conn, "k", fmt.Sprint("settled too ", i))
	}
	f.drain(src)
	f.Must(tx.Commit(f.Ctx))
	for i := range 5 {
		f.insert(f.Conn, "k", fmt.Sprint("open ", i))
	}
	f.Must(src.Close(f.Ctx))

	f.fromAnotherCluster()
	src = f.subscribe()
	f.insert(f.Conn, "k", "new")
	got := f.drain(src)
	seen := map[string]int{}
	for _, p := range got {
		seen[p]++
	}
	for _, want := range []string{"in flight at the cursor", "open 0", "open 1", "open 2", "open 3", "open 4", "new"} {
		if seen[want] == 0 {
			t.Errorf("%q was lost; got %q", want, got)
		}
	}
	if seen["settled 0"] > 0 {
		t.Errorf("all of it came again: %q", got)
	}
	f.wantDrain(src)
	f.insert(f.Conn, "k", "newer")
	f.wantDrain(src, "newer")
	f.Must(src.Close(f.Ctx))
	src = f.subscribe()
	f.wantDrain(src)
}

// A database that shuts down and one that is promoted end connections; the source continues by
// itself.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, server.URL, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "one")
	b, err := src.Fetch(f.Ctx, plenty)
	f.Must(err)
	f.Must(server.Stop())
	if err := src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}); err == nil {
		t.Fatal("Settle succeeded without a server")
	}
	if _, err := src.Fetch(f.Ctx, plenty); err == nil {
		t.Fatal("Fetch succeeded without a server")
	}
	f.Must(server.Start())
	ctx, cancel := context.WithTimeout(f.Ctx, postgrestest.Deadline)
	defer cancel()
	b, err = src.Fetch(ctx, plenty)
	f.Must(err)
	if !b.Rewound || len(b.Messages) != 1 {
		t.Fatalf("after the restart: rewound %v, %d messages; want the unsettled one again", b.Rewound, len(b.Messages))
	}
	f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
	f.wantDrain(src)
}

// A bulk transaction that commits late is read page by page, in order, among what
// others have published since.
func TestBulkTransactionCommitsLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	tx := f.lateBulk(src, 5000)
	f.Must(tx.Commit(f.Ctx))
	f.insert(f.Conn, "k", "5001")
	for want := 1; want <= 5001; {
		b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
		f.Must(err)
		if len(b.Messages) == 0 {
			t.Fatalf("message %d was lost", want)
		}
		for _, m := range b.Messages {
			if string(m.Payload) != fmt.Sprint(want) {
				t.Fatalf("got %s, want %d", m.Payload, want)
			}
			want++
		}
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
	}
	f.wantDrain(src)
}

// lateBulk publishes n messages in a transaction that the cursor has passed by.
func (f *fixture) lateBulk(src driver.Source, n int) pgx.Tx {
	f.Helper()
	conn := f.Connect()
	tx, err := conn.Begin(f.Ctx)
	f.Must(err)
	_, err = tx.Exec(f.Ctx, "insert into penstock.orders (key, payload) select 'bulk', i::text::bytea from generate_series(1, $1::int) i", n)
	f.Must(err)
	for range 2 { // the second cursor's bound is above the bulk's seqs
		f.insert(f.Conn, "k", "other")
		f.wantDrain(src, "other")
		f.Must(src.Renew(f.Ctx))
	}
	return tx
}

// BenchmarkFetchLateBulk reads a bulk transaction that committed late: a page of it
// must not cost more the larger it is.
func BenchmarkFetchLateBulk(b *testing.B) {
	for _, n := range []int{50_000, 500_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				f := newFixture(b, postgres.Options{})
				src := f.subscribe()
				f.Must(f.lateBulk(src, n).Commit(f.Ctx))
				b.StartTimer()
				if got := len(f.drain(src)); got != n {
					b.Fatalf("got %d messages, want %d", got, n)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
