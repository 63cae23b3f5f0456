package postgres_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// pages is how many pages a call touches, which is given the numbers that follow n: the
// median of some, because now and then one maintains, and each session plans once.
func (f *inboxFixture) pages(call string, n int) int {
	f.Helper()
	var pages []int
	for i := range 15 {
		var text []byte
		f.Must(f.Conn.QueryRow(f.Ctx, "explain (analyze, buffers, format json) select "+strings.ReplaceAll(call, "%d", strconv.Itoa(n+i)), pgx.QueryExecModeSimpleProtocol).Scan(&text))
		var plans []struct{ Plan map[string]any }
		f.Must(json.Unmarshal(text, &plans))
		pages = append(pages, int(plans[0].Plan["Shared Hit Blocks"].(float64)+plans[0].Plan["Shared Read Blocks"].(float64)))
	}
	slices.Sort(pages)
	return pages[len(pages)/2]
}

// Calls touch as many pages after ten thousands of others as at the start, while a snapshot
// keeps every dead row: of transactions that were rolled back, of messages that were held.
func TestInboxStaysFlat(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	f.pin()
	calls := []string{
		"penstock.inbox('billing', 'fresh-%d')",
		"penstock.inbox('billing', 'old')",
		"penstock.inbox_in_order('billing', 'key', 'in-order-%d', null, null, 'x')",
		"penstock.inbox_in_order('billing', 'key %d', 'early-%d', 'nothing', null, 'x', '1 hour')",
		"penstock.inbox_due('billing')",
	}
	measure := func(n int) (all []int) {
		for _, call := range calls {
			all = append(all, f.pages(call, n))
		}
		return all
	}
	f.Exec("select penstock.inbox_many('billing', array['old'] || array(select 'before-' || i from generate_series(1, 10000) i))") // the index has its usual depth
	f.wantFirst(f.Conn, "old", false)
	first := measure(1000)
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
	for n := range 100 { // a message is held in vain
		f.Exec("select penstock.inbox_in_order('billing', 'k', 'g' || $1::int, 'h' || $1::int, null, 'x', '0 s')", n)
		f.Exec("select penstock.inbox_due('billing')")
	}
	last := f.Number("select ceil(extract(epoch from clock_timestamp()) * 1000)::bigint")
	f.Eventually("the bound of what is due has moved past all of them", func() bool {
		f.Exec("select penstock.inbox_due('billing')")
		return f.Number(`select pg_sequence_last_value('penstock."__inbox.1.low"')`) >= last
	})
	if held := f.Number("select held from penstock.inboxes()"); held != 15 {
		t.Fatalf("%d are held, want 15", held)
	}
	after := measure(2000)
	for i, call := range calls {
		t.Logf("%s: %d pages at first, %d at last", call, first[i], after[i])
		if after[i] > first[i]+12 {
			t.Errorf("%s touched %d pages at first and %d at last", call, first[i], after[i])
		}
	}
	f.wantFirst(f.Conn, "poison", true)
}
