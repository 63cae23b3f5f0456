package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/store/postgres"
)

// explained are the statements of an outbox or queue by name.
func explained(t *testing.T, found []doctor.Statement, err error) map[string]doctor.Statement {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]doctor.Statement{}
	for _, s := range found {
		all[s.Name] = s
		t.Logf("%+v", s)
	}
	return all
}

// A relay reads no more than it returns. Rows that were rolled back before them are seen, and so is an index that is gone. Nothing
// is changed by looking.
func TestExplainOutbox(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	if _, err := f.store.ExplainOutbox(f.Ctx, "nowhere"); !errors.Is(err, penstock.ErrNoOutbox) {
		t.Errorf("an outbox that is not there: %v", err)
	}
	if found, err := f.store.ExplainOutbox(f.Ctx, "orders"); err != nil || len(found) != 0 {
		t.Errorf("nobody has subscribed: %v, %v", found, err)
	}
	src := f.subscribe()
	f.Exec("insert into penstock.orders (key, topic, payload) select 'k' || i, 't', 'p' from generate_series(1, 5000) i")
	found, err := f.store.ExplainOutbox(f.Ctx, "orders")
	all := explained(t, found, err)
	fetch, settle := all["fetch"], all["settle"]
	if fetch.Of != "orders/sub" || fetch.Rows != 1000 || fetch.Entries < 1000 || fetch.Entries > 1100 || fetch.Dead > 20 || fetch.Scanned > 20 || fetch.Slow || fetch.RoundTrips != 1 ||
		fetch.Pages == 0 || fetch.TablePages < 50 || fetch.Seconds <= 0 {
		t.Errorf("of 5000 messages: %+v", fetch)
	}
	if settle.Rows != 1 || settle.Slow || settle.Entries > 100 {
		t.Errorf("%+v", settle)
	}
	if n := len(f.drain(src)); n != 5000 {
		t.Fatalf("%d messages were there after it", n)
	}
	f.Exec("do $$ begin insert into penstock.orders (key, topic, payload) select 'k', 't', 'p' from generate_series(1, 30000); raise exception 'x'; exception when others then null; end $$")
	f.insert(f.Conn, "k", "behind them")
	found, err = f.store.ExplainOutbox(f.Ctx, "orders")
	if fetch = explained(t, found, err)["fetch"]; fetch.Rows != 1 || fetch.Dead < 30000 || !fetch.Slow || !strings.Contains(fetch.Verdict, "dead rows") {
		t.Errorf("behind 30000 rows that were rolled back: %+v", fetch)
	}
	f.wantDrain(src, "behind them")
}

func TestExplainWithoutAnIndex(t *testing.T) {
	f := newFixture(t, postgres.Options{})
	f.subscribe()
	f.Exec("insert into penstock.orders (key, topic, payload) select 'k' || i, 't', 'p' from generate_series(1, 20000) i")
	f.Exec(`do $$ declare i regclass; begin for i in select indexrelid from pg_index where indrelid = 'penstock.orders'::regclass and indnkeyatts = 1 loop execute 'drop index ' || i || ' cascade'; end loop; end $$`)
	found, err := f.store.ExplainOutbox(f.Ctx, "orders")
	if fetch := explained(t, found, err)["fetch"]; fetch.Entries+fetch.Scanned < 20000 || !fetch.Slow || !strings.Contains(fetch.Verdict, "20000 for 1000 rows") {
		t.Errorf("%+v", fetch)
	}
}

// Of a queue with a pinned snapshot nothing is stepped over, and nothing is gone afterwards.
func TestExplainQueue(t *testing.T) {
	f := newJobsFixture(t, penstock.FIFO)
	if _, err := f.store.ExplainQueue(f.Ctx, "nowhere"); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("a queue that is not there: %v", err)
	}
	pin := f.Connect()
	for _, sql := range []string{"begin isolation level repeatable read", "select count(*) from penstock.jobs"} {
		_, err := pin.Exec(f.Ctx, sql)
		f.Must(err)
	}
	f.Exec("select penstock.enqueue('jobs', 'p', group_key => 'g') from generate_series(1, 10000)")
	for range 90 {
		f.Exec("select penstock.dequeue('jobs', 100, 'g')")
	}
	f.skip("jobs", "g")
	found, err := f.store.ExplainQueue(f.Ctx, "jobs")
	all := explained(t, found, err)
	for name, rows := range map[string]int64{"dequeue": 1, "claim": 100, "ack": 100} {
		if s := all[name]; s.Of != "jobs" || s.Rows != rows || s.Slow || s.Dead > 200 || s.Pages == 0 {
			t.Errorf("%+v", s)
		}
	}
	var left, leased int
	f.Must(f.Conn.QueryRow(f.Ctx, "select (select count(*) from penstock.jobs), (select count(*) from penstock._lease)").Scan(&left, &leased))
	if left != 1000 || leased != 0 {
		t.Errorf("%d jobs and %d leases are left", left, leased)
	}
	f.Must(f.store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{MaxRunning: new(1000)}))
	found, err = f.store.ExplainQueue(f.Ctx, "jobs")
	if all := explained(t, found, err); all["claim"].Rows != 100 || all["dequeue"].Name != "" {
		t.Errorf("where dequeue is refused: %+v", all)
	}
}
