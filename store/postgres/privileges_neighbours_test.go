package postgres_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// neighbours is a database with two of each: an outbox, a queue and an inbox that roles are
// granted something of, and others that are none of their business. Those have names that
// look like parts of the first.
type neighbours struct {
	*fixture
	aims  []aim
	dump  string   // the query of all rows that are not of the first
	own   []string // the functions of the first queue and the first inbox
	calls int      // of each function
	try   int      // of the same calls with other arguments
}

// secret is in every text that an intruder must not see. Names, ids and numbers, which an intruder
// may know, are in aims.
const secret = "SECRET"

// aim is what a call may be directed at.
type aim struct {
	name      string
	texts     []string
	numbers   []int64
	relations []string
}

// newNeighbours fills what is not to be touched with one of everything.
func newNeighbours(t *testing.T) *neighbours {
	f := newFixture(t, postgres.Options{})
	const outbox, queue, inbox = "orders.seq", "jobs.take", "billing.first"
	f.Exec("select penstock.create_queue('jobs'), penstock.create_queue($1), penstock.create_inbox('billing'), penstock.create_inbox($2)", queue, inbox)
	f.Exec("select penstock.enqueue_many('jobs', array_fill('mine'::text, array[20]))")

	f.Must(f.store.CreateOutbox(f.Ctx, outbox))
	for i := range 4 {
		f.Exec("select penstock.publish($1, payload => $2, key => $3, headers => jsonb_build_object('h', $2::text))", outbox, secret, fmt.Sprint("known ", i%2))
	}
	src, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: outbox, Subscription: "their own", Holder: secret})
	f.Must(err)
	b := f.fetchSome(src)
	refused := []penstock.Failure{{Attempt: 1, Err: secret}}
	f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{
		{}, {Outcome: driver.Dead, Failures: refused}, {Outcome: driver.Parked, Failures: refused, RetryIn: time.Hour}, {}}}))
	f.Must(src.Close(f.Ctx))
	_, err = f.store.Replay(f.Ctx, admin.Replay{Outbox: outbox, Subscription: "their own"})
	f.Must(err)

	f.Exec("select penstock.enqueue($1, $2, key => 'known ' || i, group_key => 'known', dedup_key => 'known ' || i, headers => jsonb_build_object('h', $2::text)) from generate_series(1, 6) i", queue, secret)
	f.Exec("select penstock.claim($1, 4, lease => '1 day', worker => $2, group_key => 'known')", queue, secret)
	f.Exec("select penstock.enqueue($1, $2, not_before => now() + interval '1 day'), penstock.enqueue($1, $2, priority => 3)", queue, secret)
	f.Exec(`select penstock.retry($1, l.lease, '1 day', $2) from (select lease from penstock._lease order by lease limit 1) l`, queue, secret)
	f.Exec(`select penstock.dead_letter($1, l.lease, $2) from (select lease from penstock._lease order by lease limit 1) l`, queue, secret)
	f.Exec("select penstock.schedule($1, 'known', '@yearly', $2)", queue, secret)

	f.Exec("select penstock.inbox($1, 'known seen')", inbox)
	f.Exec("select penstock.inbox_in_order($1, 'known', 'known held ' || i, 'known missing ' || i, null, $2, wait => '1 day') from generate_series(1, 2) i", inbox, secret)
	f.Exec("select penstock.inbox_discard($1, '{known held 1}')", inbox)

	n := &neighbours{fixture: f, calls: testseed.Steps(16)}
	id := func(table, of, name string) int64 {
		return f.Number(fmt.Sprintf("select id from penstock.%s where %s = $1", table, of), name)
	}
	numbers := func(sql string) (all []int64) {
		rows, err := f.Conn.Query(f.Ctx, sql)
		f.Must(err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		f.Must(err)
		return all
	}
	relations := func(name string) []string {
		return n.list(`select c.oid::regclass::text from pg_class c where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'p', 'S')
			and (c.relname = $1 or starts_with(c.relname, '_' || $1 || '.')) order by c.relname`, name)
	}
	mine, theirs := id("_inbox", "consumer", "billing"), id("_inbox", "consumer", inbox)
	n.aims = []aim{
		{queue, []string{"known", "known 1", "known 2", "jobs"}, append(numbers("select lease from penstock._lease union select id from penstock._dead_job union select id from penstock._scheduled"),
			id("_queue", "name", queue)), relations(queue)},
		{outbox, []string{"their own", "known 0", "kknown 0", "kknown 1"}, append(numbers("select seq from penstock._dead_letter union select seq from penstock._parked union select n from penstock._parked_key"),
			numbers("select id from penstock._subscription")...), relations(outbox)},
		{inbox, []string{"known", "known seen", "known held 2", "known missing 2"}, []int64{theirs}, relations(fmt.Sprintf("_inbox.%d", theirs))},
	}
	for i := range n.aims {
		if len(n.aims[i].relations) < 5 || len(n.aims[i].numbers) == 0 {
			t.Fatalf("there is too little to aim at: %+v", n.aims[i])
		}
	}
	n.own = n.list(`select oid::regproc::text from penstock._own_functions('jobs') union all select oid::regproc::text from penstock._own_functions('_inbox.' || $1::int)
		union all select 'penstock.dequeue_jobs'`, mine)
	n.dump = n.allOf(id("_queue", "name", "jobs"), mine)
	if got := n.rows(); strings.Count(fmt.Sprint(got), secret) < 20 {
		t.Fatalf("there is too little to guard: %v", got)
	}
	return n
}

// allOf writes the query of all rows of all tables and the values of all sequences, without
// what belongs to the first queue, outbox or inbox. Of a table that came later it is all of
// them.
func (n *neighbours) allOf(queue, inbox int64) string {
	n.Helper()
	return strings.Join(n.list(`
		with columns as (select a.attrelid, array_agg(a.attname) as names from pg_attribute a where a.attnum > 0 and not a.attisdropped group by 1)
		select case when c.relkind = 'S' then format('select %1$L, pg_sequence_last_value(%1$L::regclass)::text', c.oid::regclass)
			else format('select %L, t::text from %s t where ', c.oid::regclass, c.oid::regclass) || case
				when 'queue' = any (k.names) then format('t.queue <> %s', $1::text)
				when 'outbox' = any (k.names) then $$t.outbox <> 'orders'$$
				when c.relname = '_queue' then format('t.id <> %s', $1::text)
				when c.relname = '_inbox' then format('t.id <> %s', $2::text)
				when c.relname = '_outbox' then $$t.name <> 'orders'$$
				when 'subscription' = any (k.names) then $$not exists (select from penstock._subscription s where s.id = t.subscription and s.outbox = 'orders')$$
				else 'true' end end
		  from pg_class c left join columns k on k.attrelid = c.oid
		 where c.relnamespace = 'penstock'::regnamespace
		   and (c.relkind in ('r', 'p') and not c.relispartition or c.relkind = 'S' and strpos(c.relname, '.') > 0) -- the other sequences are everybody's
		   and not (c.relname in ('jobs', 'orders') or c.relname ~ ('^(_jobs|_orders|__inbox\.' || $2::text || ')\.[a-z]+(\.[0-9])?$'))
		 order by 1`, fmt.Sprint(queue), fmt.Sprint(inbox)), " union all ")
}

// list is what a query of one text returns.
func (n *neighbours) list(sql string, args ...any) []string {
	n.Helper()
	rows, err := n.Conn.Query(n.Ctx, sql, args...)
	n.Must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	n.Must(err)
	return all
}

// rows are those of the others, with how often each is there.
func (n *neighbours) rows() map[string]int {
	n.Helper()
	rows, err := n.Conn.Query(n.Ctx, n.dump)
	n.Must(err)
	all := map[string]int{}
	var relation string
	var row *string
	_, err = pgx.ForEachRow(rows, []any{&relation, &row}, func() error {
		if row != nil {
			all[relation+" "+*row]++
		}
		return nil
	})
	n.Must(err)
	return all
}

// changed tells rows that are there before or after only.
func changed(before, after map[string]int) (what []string) {
	for _, row := range slices.Sorted(maps.Keys(before)) {
		if after[row] < before[row] {
			what = append(what, "- "+row)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(after)) {
		if before[row] < after[row] {
			what = append(what, "+ "+row)
		}
	}
	return what
}

// documented are the codes with which a refused call may end: those of functions on docs/reference/errors.md, and that of
// PostgreSQL for a value that is none of its type's.
var documented = []string{"42501", "42P01", "42P07", "42704", "22023", "23514", "PS001", "PS002", "25001", "0A000", "22P02"}

// function is one that a role may call.
type function struct {
	name    string // with its arguments' types
	quoted  string
	trigger bool
	callers bool // internal, with its caller's rights: it may succeed, and must change and show nothing
	types   []string
	words   []string
}

func (n *neighbours) functions(role string) []function {
	n.Helper()
	rows, err := n.Conn.Query(n.Ctx, `
		select p.oid::regprocedure::text, p.oid::regproc::text, p.prorettype = 'trigger'::regtype, not p.prosecdef and starts_with(p.proname, '_'),
		       array(select format_type(a, null) from unnest(p.proargtypes) with ordinality u(a, o) order by o)::text[],
		       array(select coalesce(p.proargnames[i], '') from generate_series(1, p.pronargs) i)::text[]
		  from pg_proc p where p.pronamespace = 'penstock'::regnamespace and has_function_privilege($1, p.oid, 'execute')
		 order by p.oid::regprocedure::text collate "C"`, role)
	n.Must(err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f function, err error) {
		return f, row.Scan(&f.name, &f.quoted, &f.trigger, &f.callers, &f.types, &f.words)
	})
	n.Must(err)
	return all
}
