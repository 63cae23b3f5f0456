package adopt_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestTransactionThatNoSnapshotLists: a snapshot lists no transaction behind the last that has ended. One that is
// there, with a row behind the head, is found by the read that shows a later row of its key.
// It runs alone: another transaction that ends would have it listed.
func TestTransactionThatNoSnapshotLists(t *testing.T) {
	for name, listedLater := range map[string]bool{"never": false, "by the next": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Exec(keyedTable)
			src := f.subscribe(f.open(keyedConfig()))
			exec := func(conn *pgx.Conn, sql string) {
				t.Helper()
				_, err := conn.Exec(f.Ctx, sql)
				f.Must(err)
			}
			other, late := f.Connect(), f.Connect()
			exec(other, "begin; select pg_current_xact_id()")
			exec(late, "begin; insert into shop (key, payload) values ('k', 'first')")
			exec(other, "insert into shop (payload) select n from generate_series(1, 5000) n; commit") // more than the slack
			var batches []driver.Batch
			for n := 0; n < 5000; n += len(batches[len(batches)-1].Messages) {
				batches = append(batches, f.fetch(src))
			}
			if listedLater {
				f.settle(src, batches[0])
				b, err := src.Fetch(f.Ctx, plenty)
				f.Must(err)
				f.want(b)
			}
			exec(late, "commit")
			f.Exec("insert into shop (key, payload) values ('k', 'second')")
			f.want(f.fetch(src), "first", "second")
		})
	}
}

// TestTransactionFromBeforeABacklog: rows that are all of a time long ago are a backlog, but may have been written just now. A transaction that
// no snapshot lists, and that is older than the backlog, may have a row among them.
func TestTransactionFromBeforeABacklog(t *testing.T) {
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("alter table shop add column created_at timestamptz not null default now() - interval '1 hour'")
	c := keyedConfig()
	c.Columns.CreatedAt = "created_at"
	src := f.subscribe(f.open(c))
	f.Must(src.Renew(f.Ctx))
	exec := func(conn *pgx.Conn, sql string) {
		t.Helper()
		_, err := conn.Exec(f.Ctx, sql)
		f.Must(err)
	}
	other, late := f.Connect(), f.Connect()
	exec(other, "begin; select pg_current_xact_id()")
	exec(late, "begin; insert into shop (key, payload) values ('k', 'first')")
	exec(other, "insert into shop (payload) select n from generate_series(1, 5000) n; commit")
	for n := 0; n < 5000; {
		b := f.fetch(src)
		n += len(b.Messages)
		if n == 5000 {
			f.settle(src, b)
		}
	}
	if lag := adopt.Lags(src); lag < 59*time.Minute {
		t.Fatalf("no backlog: the lag is %v", lag)
	}
	b, err := src.Fetch(f.Ctx, plenty)
	f.Must(err)
	f.want(b)
	exec(late, "commit")
	f.Exec("insert into shop (key, payload) values ('k', 'second')")
	f.want(f.fetch(src), "first", "second")
}

// TestHeadWaitsForLateRows: a batch that has room left takes nothing of the head while rows that were found behind it wait. How
// many it takes of those is guessed from the size of the rows at the head.
func TestHeadWaitsForLateRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	src := f.subscribe(f.open(keyedConfig()))
	late := f.Connect()
	_, err := late.Exec(f.Ctx, "begin; insert into shop (key, payload) select 'k', n from generate_series(1, 5) n")
	f.Must(err)
	f.Exec("insert into shop (payload) values ('ahead')")
	f.want(f.fetch(src), "ahead")
	_, err = late.Exec(f.Ctx, "commit")
	f.Must(err)
	f.Exec("insert into shop (key, payload) values ('k', repeat('6', 1400))")
	var got []string
	for len(got) < 6 {
		b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 1000, Bytes: 2000})
		f.Must(err)
		for _, m := range b.Messages {
			got = append(got, string(m.Payload[:1]))
		}
	}
	if !slices.Equal(got, []string{"1", "2", "3", "4", "5", "6"}) {
		t.Errorf("got %q", got)
	}
}

// TestMoreLateRowsThanALookLists: those that it lists next come behind those that it has listed.
func TestMoreLateRowsThanALookLists(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	src := f.subscribe(f.open(keyedConfig()))
	late := f.Connect()
	_, err := late.Exec(f.Ctx, "begin; insert into shop (key, payload) select 'k', n from generate_series(1, 11000) n")
	f.Must(err)
	f.Exec("insert into shop (payload) values ('ahead')")
	f.want(f.fetch(src), "ahead")
	_, err = late.Exec(f.Ctx, "commit")
	f.Must(err)
	f.Exec("insert into shop (key, payload) values ('k', 11001)")
	for n := 0; n < 11001; {
		for _, p := range payloads(f.fetch(src)) {
			if n++; p != strconv.Itoa(n) {
				t.Fatalf("got %s when it was the turn of %d", p, n)
			}
		}
	}
}

// TestLevelsLeaveOutWhatIsInFlight: they would list it again and again.
func TestLevelsLeaveOutWhatIsInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 3) n")
	c := keyedConfig()
	c.Batch = 1
	src := f.subscribe(f.open(c))
	first, second := f.fetch(src), f.fetch(src)
	if n := adopt.Within(src, time.Hour); n > 0 {
		t.Errorf("with nothing settled, a look covers %d batches", n)
	}
	f.settle(src, second)
	if n := adopt.Within(src, time.Hour); n > 0 {
		t.Errorf("with the first in flight, a look covers %d batches", n)
	}
	third := f.fetch(src)
	f.settle(src, first)
	if n := adopt.Within(src, time.Hour); n != 2 {
		t.Errorf("with two settled, a look covers %d batches", n)
	}
	f.settle(src, third)
	if n := adopt.Within(src, time.Hour); n != 3 {
		t.Errorf("with all settled, a look covers %d batches", n)
	}
}

// TestLagOfABacklog: full pages of old rows are a backlog, and its end is its end.
func TestLagOfABacklog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(messageTable)
	f.Exec("insert into outbox (ts, message) select now() - interval '1 hour', n from generate_series(1, 5) n")
	src := f.subscribe(f.open(adopt.Config{Preset: "message", Batch: 2}))
	for range 2 {
		f.settle(src, f.fetch(src))
		if lag := adopt.Lags(src); lag < 59*time.Minute || lag > 2*time.Hour {
			t.Errorf("rows of an hour ago, and the lag is %v", lag)
		}
	}
	f.settle(src, f.fetch(src))
	if lag := adopt.Lags(src); lag != 0 {
		t.Errorf("the last page was not full, and the lag is %v", lag)
	}
}
