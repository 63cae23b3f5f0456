package wire_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
)

// simulator is one whose time is counted rather than waited for.
func simulator(t *testing.T) (y *wire.Yugabyte, waited *atomic.Int64) {
	t.Helper()
	y, end, err := wire.NewYugabyte(t.Context(), testserver.Database(t, testserver.PostgresURL(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	waited = &atomic.Int64{}
	y.Sleep = func(d time.Duration) { waited.Add(int64(d)) }
	return y, waited
}

func conn(t *testing.T, y *wire.Yugabyte) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), y.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Flushes are as published: "Write Buffering to Reduce Raft Consensus Latency" has 33 for 100,000 rows, and one a row with ON CONFLICT or a trigger.
func TestYugabyteFlushes(t *testing.T) {
	t.Parallel()
	y, waited := simulator(t)
	c := conn(t, y)
	exec(t, c, "create table demo (id bigint, a int, b int, c int, primary key (id hash)) split into 16 tablets")
	exec(t, c, "create table log (id bigint, ts timestamptz, primary key (ts asc, id desc))")
	exec(t, c, "create function f() returns trigger language plpgsql as $$ begin return new; end $$")
	for _, step := range []struct {
		sql             string
		flushes, writes int64
	}{
		{"insert into demo select n, 0, 0, 0 from generate_series(1, 100000) n", 33 + 1, 100000},
		{"insert into demo select n, 0, 0, 0 from generate_series(99991, 100020) n on conflict do nothing", 20 + 1, 20},
		{"insert into demo select n, 0, 0, 0 from generate_series(1, 20) n on conflict do nothing", 0, 0},
		{"create trigger row before insert on demo for each row execute function f()", 0, 0},
		{"insert into demo select n, 0, 0, 0 from generate_series(200001, 200020) n", 20 + 1, 20},
		{"insert into log select n, now() from generate_series(1, 20) n", 1 + 1, 20},
		{"select id from demo where id = 1", 0, 0},
		{"begin", 0, 0},
		{"select id from demo where id = 1 for update", 1, 0},
		{"with gone as (delete from demo where id = 1 returning id) select id from gone", 1, 1},
		{"commit", 1, 0},
		{"begin", 0, 0},
		{"select id from demo where id = 2", 0, 0},
		{"commit", 0, 0},
	} {
		before, slept := y.Counts(), waited.Load()
		exec(t, c, step.sql)
		n := y.Counts().Since(before)
		if n.Flushes != step.flushes || n.Writes != step.writes || n.Statements != 1 {
			t.Errorf("%s: %+v, want %d flushes and %d writes", step.sql, n, step.flushes, step.writes)
		}
		if took := time.Duration(waited.Load() - slept); took != time.Duration(n.Flushes)*y.Flush+time.Duration(n.Nexts)*y.Step {
			t.Errorf("%s: %+v, it waited %v", step.sql, n, took)
		}
	}
}

// A statement walks over deleted entries for as long as a snapshot is held, as in "The Curious Case of the Ever-Increasing Tombstones".
func TestYugabyteTombstones(t *testing.T) {
	t.Parallel()
	y, _ := simulator(t)
	c, held := conn(t, y), conn(t, y)
	exec(t, c, "create table events (id int primary key, ts timestamp, data text)")
	exec(t, c, "create index on events (ts asc)")
	exec(t, c, "insert into events select n, timestamp '2021-02-25' + n * interval '1 minute', 'event' from generate_series(1, 2000) n")
	exec(t, held, "begin isolation level repeatable read")
	exec(t, held, "select count(*) from pg_class")
	exec(t, c, "set enable_seqscan = off")
	exec(t, c, "set enable_bitmapscan = off")
	exec(t, c, "delete from events where id <= 1000")
	for sql, want := range map[string]int64{
		"select id from events order by ts limit 1":                                                             1001,
		"select id from events where ts > timestamp '2021-02-25' + interval '1000 minutes' order by ts limit 1": 1,
	} {
		for range 2 {
			before := y.Counts()
			exec(t, c, sql)
			if n := y.Counts().Since(before); n.Nexts != want || n.Seeks != 1 {
				t.Errorf("%s: %+v, want 1 seek and %d nexts", sql, n, want)
			}
		}
	}
}

// It refuses statements, gives out numbers in blocks, and has errors that ask for another try.
func TestYugabyteDiffers(t *testing.T) {
	t.Parallel()
	y, _ := simulator(t)
	a, b := conn(t, y), conn(t, y)
	exec(t, a, "create table t (id bigint generated always as identity primary key, n int)")
	for _, sql := range []string{"select xmin from t", "select pg_advisory_xact_lock(1)", "select txid_current()"} {
		if _, err := a.Exec(t.Context(), sql); pgerror.State(err) != "0A000" {
			t.Errorf("%s: %v, want that it is not supported", sql, err)
		}
	}
	var version string
	if err := a.QueryRow(t.Context(), "select version()").Scan(&version); err != nil || version != wire.YugabyteVersion {
		t.Error(version, err)
	}
	for i, c := range []*pgx.Conn{a, b, a} {
		var id int64
		if err := c.QueryRow(t.Context(), "insert into t (n) values ($1) returning id", i).Scan(&id); err != nil || id != []int64{1, 101, 2}[i] {
			t.Errorf("row %d has the number %d, %v", i, id, err)
		}
	}
	texts := map[string]bool{}
	for range 5 {
		y.Once(wire.Refuse, "update t", nil)
		_, err := a.Exec(t.Context(), "update t set n = 0 where n = $1", 99)
		if state := pgerror.State(err); state != "40001" && state != "40P01" {
			t.Fatal(err)
		}
		texts[strings.Fields(err.Error())[1]] = true
	}
	if len(texts) < 4 {
		t.Errorf("refused with %v", texts)
	}
}

// In SERIALIZABLE a claim waits for a row that another has locked, in place of skipping it; elsewhere it skips. A node that is killed takes its sessions
// with it, and their locks stay for a while.
func TestYugabyteLocks(t *testing.T) {
	t.Parallel()
	for _, serializable := range []bool{false, true} {
		y, _ := simulator(t)
		expires, expired := make(chan struct{}), make(chan struct{})
		y.Sleep = func(d time.Duration) {
			if d == y.Expiry {
				close(expires)
				<-expired
			}
		}
		y.Serializable = serializable
		holder, other, watch := conn(t, y), conn(t, y), conn(t, y) // one on each node
		exec(t, holder, "create table t (n int primary key)")
		exec(t, holder, "insert into t values (1), (2)")
		exec(t, holder, "begin")
		exec(t, holder, "select n from t order by n for update skip locked limit 1")
		claimed := make(chan error, 1)
		n := 0
		go func() {
			claimed <- other.QueryRow(t.Context(), "select n from t where n < $1 order by n for update skip locked limit 1", 9).Scan(&n)
		}()
		if !serializable {
			if err := <-claimed; err != nil || n != 2 {
				t.Errorf("claimed %d, %v", n, err)
			}
			continue
		}
		waits := func() (n int) {
			if err := watch.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for waits() == 0 {
			select {
			case err := <-claimed:
				t.Fatalf("claimed %d, which is locked, or another: %v", n, err)
			default:
			}
		}
		if killed := y.KillNode(0); killed != 1 {
			t.Errorf("%d sessions were killed", killed)
		}
		if err := holder.Ping(t.Context()); err == nil {
			t.Error("a killed session answers")
		}
		select {
		case <-expires:
		case err := <-claimed:
			t.Fatalf("the locks of a killed node ended with it: claimed %d, %v", n, err)
		}
		if waits() == 0 {
			t.Error("the locks of a killed node ended before they expired")
		}
		close(expired)
		if err := <-claimed; err != nil || n != 1 {
			t.Errorf("claimed %d, %v", n, err)
		}
	}
}
