package postgres_test

import (
	"strconv"
	"strings"
	"testing"
)

// pages is how many pages a call reads at most, which is given the numbers that follow n.
func (f *inboxFixture) pages(call string, n int) (most int) {
	f.Helper()
	// Neither maintenance nor, which is once a second, the step that moves the bound of what is due: it goes over what was held for long.
	const notDue = `select setval('penstock."__inbox.1.next"', ms + 5000), setval('penstock."__inbox.1.low"', ms + 4000) from (select (extract(epoch from clock_timestamp()) * 1000)::bigint) x(ms)`
	for i := range 15 {
		most = max(most, f.pagesOn(f.Conn, notDue, "select "+strings.ReplaceAll(call, "%d", strconv.Itoa(n+i))))
	}
	return most
}

// Calls read few pages after ten thousands of others, while a snapshot keeps every dead row: of transactions that were rolled
// back, of messages that were held. A call looks up its id in each of the three segments that are live (inbox.sql).
func TestInboxStaysFlat(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	f.pin()
	const live = 3
	calls := map[string]struct{ asks, writes int }{
		"penstock.inbox('billing', 'fresh-%d')":                                                    {1, 1}, // the id
		"penstock.inbox('billing', 'old')":                                                         {1, 0},
		"penstock.inbox_in_order('billing', 'key', 'in-order-%d', null, null, 'x')":                {4, 2}, // the id, whether it is a gap, the key's head, and what waits for it
		"penstock.inbox_in_order('billing', 'key %d', 'early-%d', 'nothing', null, 'x', '1 hour')": {5, 2}, // the id and the one before it, whether these are gaps, and whether that is held
		"penstock.inbox_due('billing')":                                                            {1, 0}, // what is due
	}
	f.Exec("select penstock.inbox_many('billing', array['old'] || array(select 'before-' || i from generate_series(1, 10000) i))") // the index has its usual depth
	f.wantFirst(f.Conn, "old", false)
	for range 200 {
		tx := f.begin(f.Conn)
		f.wantFirst(tx, "poison", true)
		f.Must(tx.Rollback(f.Ctx))
	}
	f.Exec("select penstock.inbox_many('billing', array(select 'more-' || i from generate_series(1, 10000) i))")
	for n := range 40 { // a message is held, and the one before it comes
		f.Exec("select penstock.inbox_in_order_bytes('billing', 'k', 'm' || i, 'm' || (i - 1), null, decode(repeat('00', 2000), 'hex'), '1 hour') from generate_series($1::int, $2::int, -1) i", n*100+99, n*100)
		f.Exec("select penstock.inbox_in_order('billing', 'k', 'm' || $1::int, null, null, 'x')", n*100-1)
	}
	for n := range 100 { // a message is held, and the one before it never comes
		f.Exec("select penstock.inbox_in_order('billing', 'k', 'g' || $1::int, 'h' || $1::int, null, 'x', '0 s')", n)
		f.Exec("select penstock.inbox_due('billing')")
	}
	last := f.Number("select ceil(extract(epoch from clock_timestamp()) * 1000)::bigint")
	f.Eventually("the bound of what is due has moved past all of them", func() bool {
		f.Exec("select penstock.inbox_due('billing')")
		return f.Number(`select pg_sequence_last_value('penstock."__inbox.1.low"')`) >= last
	})
	if held := f.Number("select held from penstock.inboxes()"); held != 0 {
		t.Fatalf("%d are held, want none", held)
	}
	for call, c := range calls {
		most := (live*c.asks + c.writes + 1) * rowPages // and the inbox's own row
		pages := f.pages(call, 2000)
		t.Logf("%s: %d pages of %d", call, pages, most)
		if pages > most {
			t.Errorf("%s reads %d pages, want at most %d", call, pages, most)
		}
	}
	f.wantFirst(f.Conn, "poison", true)
}
