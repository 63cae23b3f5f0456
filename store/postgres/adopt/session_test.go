package adopt_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestLowWaterMarkSurvives: a reader that comes next begins where the mark is, however
// many rows were delivered before.
func TestLowWaterMarkSurvives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("insert into shop (payload) select n from generate_series(1, 3000) n")
	c := keyedConfig()
	c.Margin, c.Delivered, c.Sweep = time.Millisecond, adopt.Delete, time.Hour
	table := f.open(c)
	src := f.subscribe(table)
	for n := 0; n < 3000; {
		b := f.fetch(src)
		n += len(b.Messages)
		f.settle(src, b)
	}
	f.Eventually("the mark is at the head", func() bool {
		f.Must(src.Renew(f.Ctx))
		return f.Number("select (low = '{3000}')::int from (select coalesce(low, '{}') as low from penstock._adopt_log order by n desc limit 1) l") == 1
	})
	f.Must(src.Close(f.Ctx))
	f.Exec("insert into shop (payload) values ('next')")
	next := f.subscribe(table)
	if _, args := adopt.ReadStatement(next); len(args) != 2 || args[1] != "3000" {
		t.Errorf("the next reader begins at %v", args)
	}
	f.want(f.fetch(next), "next")
}

// The connections of a table last, however little the server likes idle ones.
func TestIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Exec(keyedTable)
	f.Exec("do $$ begin execute format('alter database %I set idle_session_timeout = 1000', current_database()); end $$")
	table, err := adopt.Open(f.Ctx, adopt.Options{URL: f.URL + "&application_name=pooled", Subscription: "sub", Config: keyedConfig(), Log: quiet()})
	f.Must(err)
	t.Cleanup(func() { _ = table.Close() })
	f.Must(table.Check(f.Ctx))
	for range 2 { // each is a session that the server ended for being idle
		conn, err := pgx.Connect(f.Ctx, f.URL)
		f.Must(err)
		for err == nil {
			_, err = conn.PgConn().ReceiveMessage(f.Ctx)
		}
		f.Must(f.Ctx.Err())
	}
	if n := f.Number("select count(*) from pg_stat_activity where application_name = 'pooled' and datname = current_database()"); n == 0 {
		t.Error("the pool has lost its connections")
	}
}
