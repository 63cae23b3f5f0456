package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/testseed"
)

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// argument is a value of the type, aimed at something, as SQL.
func (a aim) argument(r *rand.Rand, kind, word, role string) string {
	one := func() string {
		switch {
		case slices.Contains([]string{"queue", "outbox", "name", "consumer"}, word) || r.IntN(2) == 0:
			return quoted(a.name)
		default:
			return quoted(a.texts[r.IntN(len(a.texts))])
		}
	}
	base, array := strings.CutSuffix(kind, "[]")
	var value string
	if r.IntN(6) == 0 {
		return "null::" + kind
	}
	switch base {
	case "text", "name", "character varying":
		if value = one(); word == "role" {
			value = quoted(role)
		}
	case "bigint", "integer":
		value = fmt.Sprint(a.numbers[r.IntN(len(a.numbers))])
		if base == "integer" && len(value) > 9 || r.IntN(4) == 0 {
			value = fmt.Sprint(r.IntN(3))
		}
	case "smallint":
		value = fmt.Sprint(r.IntN(3))
	case "boolean":
		value = fmt.Sprint(r.IntN(2) == 0)
	case "regclass":
		value = quoted(a.relations[r.IntN(len(a.relations))])
	case "interval":
		value = "'1 hour'"
	case "timestamp with time zone":
		value = "now()"
	case "json", "jsonb":
		value = "'{}'"
	case "bytea":
		value = "'x'"
	default:
		return "null::" + kind
	}
	if array {
		all := make([]string, 1+r.IntN(3))
		for i := range all {
			all[i] = a.argument(r, base, word, role)
		}
		return fmt.Sprintf("array[%s]::%s", strings.Join(all, ", "), kind)
	}
	return value + "::" + kind
}

// call is a statement that calls the function.
func (n *neighbours) call(f function, r *rand.Rand, role string) string {
	a := n.aims[r.IntN(len(n.aims))]
	if f.trigger { // every role can have its own temporary table
		return fmt.Sprintf(`create temporary table attack (seq bigint, xid xid8, created_at timestamptz, slot smallint, attempt int, priority smallint, group_key text, id text, key text, topic text, headers jsonb, payload bytea) on commit drop;
			create trigger attack before insert on attack for each row execute function %s(%s, %s);
			insert into attack values (1, '5', now(), 0, 1, 3, 'g', 'i', 'k', 't', '{}', 'x')`, f.quoted, quoted(a.name), quoted(a.relations[r.IntN(len(a.relations))]))
	}
	arguments := make([]string, len(f.types))
	for i, kind := range f.types {
		arguments[i] = a.argument(r, kind, f.words[i], role)
	}
	return fmt.Sprintf("select f::text from %s(%s) f", f.quoted, strings.Join(arguments, ", "))
}

// intrude calls whatever a role may call, reads whatever it may read, and tells what it
// should not have come to.
func (n *neighbours) intrude(p part, role, asRole string) (found []string) {
	n.Helper()
	conn := n.connectAs(asRole)
	_, err := conn.Exec(n.Ctx, "set bytea_output = 'escape'; set statement_timeout = '20s'")
	n.Must(err)
	before := n.rows()
	var kinds map[string]bool // of what was found of one function
	find := func(kind, format string, args ...any) {
		if !kinds[kind] {
			kinds[kind], found = true, append(found, fmt.Sprintf(format, args...))
		}
	}
	look := func(what string) {
		after := n.rows()
		for _, row := range changed(before, after) {
			if !slices.ContainsFunc(p.changes, func(r string) bool { return strings.HasPrefix(row[2:], "penstock."+r+" ") }) {
				find("change", "%s changes %s", what, row)
			}
		}
		before = after
	}
	known := slices.Concat(n.own, everybodys, p.calls)
	for _, f := range n.functions(role) {
		kinds = map[string]bool{}
		r := testseed.New(p.name+f.name, n.try)
		for range n.calls {
			sql := n.call(f, r, role)
			results, err := conn.PgConn().Exec(n.Ctx, sql).ReadAll()
			if text := told(results, err); strings.Contains(text, secret) {
				find("told", "%s tells %s", sql, text)
			}
			switch {
			case slices.Contains(known, f.quoted) || f.callers: // what it changes and shows is looked at all the same
			case err == nil:
				find("allowed", "%s is allowed", sql)
				look(sql)
			case !slices.Contains(documented, pgerror.State(err)):
				find("error", "%s ends with %v", sql, err)
			}
			if len(f.types) == 0 && !f.trigger {
				break
			}
		}
		look("a call of " + f.name) // also of those that failed: a sequence keeps what was set
	}
	for _, relation := range n.list(`select c.oid::regclass::text from pg_class c where c.relnamespace = 'penstock'::regnamespace
			and c.relkind in ('r', 'p', 'v', 'm') and has_table_privilege($1, c.oid, 'select') order by 1`, role) {
		kinds = map[string]bool{}
		results, err := conn.PgConn().Exec(n.Ctx, "select t::text from "+relation+" t").ReadAll()
		if text := told(results, err); err != nil || strings.Contains(text, secret) && !slices.Contains(p.reads, strings.TrimPrefix(relation, "penstock.")) {
			find("told", "of %s it reads %s", relation, text)
		}
	}
	return found
}

// told is all that a client was told.
func told(results []*pgconn.Result, err error) string {
	var b strings.Builder
	for _, result := range results {
		for _, row := range result.Rows {
			fmt.Fprintf(&b, "%s\n", row)
		}
	}
	if err != nil {
		fmt.Fprintf(&b, "%+v", err)
	}
	return b.String()
}

// everybodys functions may succeed wherever they are aimed: they look at their arguments.
var everybodys = []string{"penstock.deduplicated", "penstock._check_functions"}

// part is what a role plays: what it is granted of the first of each, a relay of all
// outboxes.
type part struct {
	name, grant string
	// Beyond the first queue, outbox and inbox: which functions it may call with success, and which
	// parts of the others it may change and read, because that is its task.
	calls, changes, reads []string
	// privileges on relations, see TestPrivileges.
	privileges string
}

var parts = []part{
	{name: "anybody", grant: "grant usage on schema penstock to %s"},
	{name: "producer", grant: "select penstock.grant_producer('orders', '%s')", privileges: `
		_orders.seq: usage
		_orders.slot: select
		orders: insert (headers id key payload topic)`},
	{name: "relay", grant: "select penstock.grant_relay('%s')",
		calls: []string{"penstock._behind", "penstock._holders", "penstock._reclaim", "penstock._reclaim_cursor", "penstock._reclaim_parked", "penstock._reclaim_parked_keys", "penstock._report_sink", "penstock._rotate", "penstock._subscription_samples", "penstock._take_samples"},
		// It has all outboxes: settles, turns their rings, and knows what they hold.
		changes: []string{"_cursor", "_parked", "_parked_key", "_sample", "_sampling", "_subscription", `"_orders.seq.slot"`},
		reads:   []string{`"orders.seq"`, "_cursor", "_dead_letter", "_parked", "_parked_key"},
		privileges: `
		_cursor: insert select
		_cursor_n: usage
		_cursor_slot: select
		_dead_letter: delete insert select update
		_migration: select
		_orders.seq.seq: select
		_orders.seq.slot: select
		_orders.seq: select
		_orders.slot: select
		_outbox: select
		_parked: insert select
		_parked_key: insert select
		_parked_key_n: select usage
		_parked_key_slot: select
		_parked_p: usage
		_parked_slot: select
		_replay: delete insert select update
		_retry: delete insert select update
		_subscription: insert select
		orders.seq: select
		orders: select`},
	{name: "adopter", grant: "select penstock.grant_adopt('%s')", privileges: `
		_adopt_log: delete insert select update
		_adopt_n: usage
		_adopt_row: delete insert select update
		_adopt_subscription: delete insert select update
		_migration: select`},
	{name: "enqueuer", grant: "select penstock.grant_enqueuer('jobs', '%s')", privileges: `
		_jobs.flags: select
		_jobs.ring: select
		_jobs.seq: usage
		jobs: insert (group_key headers key payload priority)`},
	{name: "worker", grant: "select penstock.grant_worker('jobs', '%s')", changes: []string{"_sample", "_sampling"}, privileges: `
		_jobs.maintained: select`},
	{name: "operator", grant: "select penstock.grant_operator('jobs', '%s')", privileges: `
		_dead_job: select
		_jobs.ring: select
		_migration: select
		_queue: select
		_sample: select`},
	{name: "consumer", grant: "select penstock.grant_consumer('billing', '%s')"},
	{name: "inbox operator", grant: "select penstock.grant_inbox_operator('billing', '%s')", calls: []string{"penstock.inboxes"}, privileges: `
		_inbox: select
		_migration: select`},
}

// play makes the role.
func (n *neighbours) play(p part) (role, asRole string) {
	n.Helper()
	role, asRole = n.role()
	n.Exec(fmt.Sprintf(p.grant, role))
	return role, asRole
}

// A role that was granted something of one queue, outbox or inbox does nothing to another one and
// is told nothing of it, whatever it calls. Each function that it may call is called with arguments
// of its types that mean the other one.
func TestIntrudersComeToNothing(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	n := newNeighbours(t)
	for _, p := range parts {
		role, asRole := n.play(p)
		for _, f := range n.intrude(p, role, asRole) {
			t.Errorf("%s: %s", p.name, strings.ReplaceAll(f, role, "ROLE"))
		}
	}
}

// TestIntrudersComeToNothing finds a role that was granted too much.
func TestIntrudersAreFound(t *testing.T) {
	testseed.Soak(t) // arguments are drawn until one finds it
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	n := newNeighbours(t)
	of := func(name string) part {
		return parts[slices.IndexFunc(parts, func(p part) bool { return p.name == name })]
	}
	for _, mistake := range []struct{ part, sql, finds string }{
		{"worker", "grant execute on function penstock._holders(text, int) to %s", "is allowed"},
		{"enqueuer", `select penstock._grant_own('jobs.take', '{take}', '%s')`, "changes - "},
		{"operator", `select penstock._grant_own('jobs.take', '{operate}', '%s')`, "is allowed"},
		{"consumer", `select penstock._grant_own('_inbox.' || i.id, '{list_held}', '%s') from penstock._inbox i where i.consumer = 'billing.first'`, "is allowed"},
		{"producer", "grant select on penstock._schedule to %s", "of penstock._schedule it reads"},
		{"anybody", `create function penstock.empty(number bigint) returns void language sql security definer as 'delete from penstock._lease l where l.lease = number';
			select '%s'`, "penstock.empty"},
		{"anybody", `create function penstock.look(of_table regclass) returns setof text language plpgsql security definer as
			$fn$ begin return query execute format('select t::text from %%s t', of_table); end $fn$; select '%s'`, "tells"},
		{"anybody", `create function penstock.mark() returns trigger language plpgsql security definer as
			$fn$ begin perform setval(tg_argv[1]::regclass, 7); raise exception 'no' using errcode = '22023'; exception when wrong_object_type then return new; end $fn$; select '%s'`, "changes - penstock."},
	} {
		p := of(mistake.part)
		role, asRole := n.play(p)
		n.Exec(fmt.Sprintf(mistake.sql, role))
		var found []string
		is := func(f string) bool { return strings.Contains(f, mistake.finds) }
		for n.try = 0; n.try < 10 && !slices.ContainsFunc(found, is); n.try++ { // arguments are drawn
			found = n.intrude(p, role, asRole)
		}
		if !slices.ContainsFunc(found, is) {
			t.Errorf("%s with %q: found %q, want something with %q", mistake.part, mistake.sql, found, mistake.finds)
		}
		n.Exec("drop function if exists penstock.empty, penstock.look, penstock.mark cascade")
	}
}

// A role has these rights on tables and sequences, and no others: what came with a later
// migration it was not granted by the way.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	if got := n.list("select distinct c.relname from pg_class c where c.relnamespace = 'penstock'::regnamespace and c.relkind <> 'i' and (has_any_column_privilege('public', c.oid, 'select,insert,update,references') or has_table_privilege('public', c.oid, 'delete,truncate,trigger'))"); !slices.Equal(got, []string{"_waiting_message"}) {
		t.Errorf("PUBLIC has rights on %q", got)
	}
	for _, p := range parts {
		role, _ := n.play(p)
		got := n.list(`
			with rights as (
				select c.relname as name, array_agg(r order by r) as all
				  from pg_class c, unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) r
				 where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and has_table_privilege($1, c.oid, r) group by 1
				union all
				select c.relname, array_agg(r order by r) from pg_class c, unnest('{select,update,usage}'::text[]) r
				 where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'S' and has_sequence_privilege($1, c.oid, r) group by 1),
			columns as (
				select c.relname as name, r, array_agg(a.attname order by a.attname) as all
				  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped, unnest('{select,insert,update,references}'::text[]) r
				 where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
				   and has_column_privilege($1, c.oid, a.attnum, r) and not has_table_privilege($1, c.oid, r) and not has_column_privilege('public', c.oid, a.attnum, r) group by 1, 2)
			select name || ': ' || array_to_string(r.all, ' ') from rights r
			union all select name || ': ' || r || ' (' || array_to_string(c.all, ' ') || ')' from columns c
			order by 1`, role)
		want := strings.FieldsFunc(p.privileges, func(r rune) bool { return r == '\n' })
		for i := range want {
			want[i] = strings.TrimSpace(want[i])
		}
		slices.Sort(got)
		if want = slices.DeleteFunc(want, func(s string) bool { return s == "" }); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s has the rights\n%s\nwant\n%s", p.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
