package postgres_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

var update = flag.Bool("update", false, "write schema/golden and docs/reference/schema.md anew")

// goldenServer is the major version whose way of writing definitions the files have. Others quote and qualify otherwise.
const goldenServer = 15

// goldenParts are the files of schema/golden: what stands in a database with one queue of each kind, an outbox and an inbox. Of a queue with a like
// there is what differs from that one, as diff shows it.
var goldenParts = []struct{ name, says, relations, functions, queue, like string }{
	{name: "shared.sql", says: "What is there once, with the functions that take a name. Of a function that stands word for word in a file of store/postgres there is only the name of that file, in which {schema} stands for penstock. Everybody may execute internal functions without SECURITY DEFINER.",
		relations: "c.relname !~ '^_?(emails|stack|archived|orders)([.]|$)' and c.relname !~ '^__inbox'", functions: "p.proname !~ '^(_|dequeue_)(emails|stack|archived)([.]|$)' and p.proname !~ '^__inbox'"},
	{name: "outbox.sql", says: "The outbox orders.", relations: "c.relname ~ '^_?orders([.]|$)'", functions: "false"},
	{name: "queue_fifo.sql", says: "The queue emails, of first in, first out.", queue: "emails"},
	{name: "queue_lifo.diff", says: "What is different in a queue of last in, first out: a line with - is in queue_fifo.sql only, one with + is here only. The queue is shown as emails here, too.",
		queue: "stack", like: "queue_fifo.sql"},
	{name: "queue_history.diff", says: "What is different in a queue that keeps what is done: a line with - is in queue_fifo.sql only, one with + is here only. The queue is shown as emails here, too.",
		queue: "archived", like: "queue_fifo.sql"},
	{name: "inbox.sql", says: "The inbox of billing.", relations: "c.relname ~ '^__inbox'", functions: "p.proname ~ '^__inbox'"},
}

// goldenOrder is the order of functions. Those of one queue have the order of a job's life. All others have that of the files of
// schema/functions, which follow a message's life, a job's, and an inbox's.
var goldenOrder = struct{ own, files []string }{
	strings.Fields("enqueue enqueue_many barrier flags dequeue scan take skip_map claim draw claim_scan take_keyed candidates busy put_off pull ack extend report release fail ready maintain pause cancel retry_dead discard_dead count count_groups done_jobs find"),
	strings.Fields(`publish outbox manage_outboxes reclaim cursor parked adopt
		create_queue queue_by_name enqueue jobs queue take lease settle_leases keys maintenance schedules queue_ring barriers publish_after pairs dumps history samples queue_groups operate_jobs manage_queues views
		inbox inbox_ids inbox_order inbox_maintenance operate_inboxes manage_inboxes define_inboxes
		own_functions doors 0_templates queue_text clients hashes`),
}

// schema/golden has the functions that run, as the database has them: after a change of the files that make them,
// it shows the effect. go test ./store/postgres -run TestGolden -update writes it.
func TestGolden(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	if version := f.Number("select current_setting('server_version_num')::int / 10000"); version != goldenServer {
		t.Skipf("the files are as PostgreSQL %d writes definitions, this is %d", goldenServer, version)
	}
	f.Exec("select penstock.create_queue('emails'), penstock.create_inbox('billing')")
	f.Exec("select setval(pg_get_serial_sequence('penstock._queue', 'id'), 7000000)") // a number that is nothing else in their texts
	f.Exec("select penstock.create_queue('stack', 'lifo'), penstock.create_queue('archived'), penstock.set_queue('archived', keep_done => '1 day')")
	asEmails := map[string]*strings.Replacer{"emails": strings.NewReplacer(), "stack": strings.NewReplacer("stack", "emails", "7000001", "1"), "archived": strings.NewReplacer("archived", "emails", "7000002", "1")}
	g := &golden{fixture: f, said: schemaComments(t), order: functionOrder(t)}
	g.madeFromFiles()
	parts := map[string]string{}
	for _, part := range goldenParts {
		file := filepath.Join("schema", "golden", part.name)
		if part.queue != "" {
			part.relations, part.functions = fmt.Sprintf("c.relname ~ '^_?%s([.]|$)'", part.queue), fmt.Sprintf("p.proname ~ '^(_|dequeue_)%s([.]|$)'", part.queue)
		}
		got := g.write(part.relations, part.functions)
		if part.like != "" {
			got = "\n" + difference(parts[part.like], asEmails[part.queue].Replace(got))
		}
		parts[part.name] = got
		g.compare(file, part.says, got)
	}
	g.compare(filepath.Join("schema", "golden", "rights.sql"), "What each grant gives to a role, besides the functions that everybody may execute: those of which shared.sql says so, and internal ones with the caller's rights.", g.rights())
}

// compare reports a file that is not what the database has, or writes it.
func (g *golden) compare(file, says, got string) {
	g.Helper()
	got = commented(says+" As it stands in the database, with the comments of store/postgres/schema; TestGolden compares it, and -update writes it.") + got
	if *update {
		g.Must(os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	g.Must(err)
	if got != string(want) {
		g.Errorf("%s is not what the database has: run go test ./store/postgres -run TestGolden -update, and look at the difference\n%s", file, firstDifference(string(want), got))
	}
}

// What queue_fifo.sql shows of one queue holds for all: the functions of two differ by their names and numbers only.
func TestQueuesDifferByNameOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select setval(pg_get_serial_sequence('penstock._queue', 'id'), 7000000)") // else a number of the text is taken for it
	f.Exec("select penstock.create_queue('emails'), penstock.create_queue('news'), penstock.create_queue('stack', 'lifo'), penstock.create_queue('heap', 'lifo')")
	for _, pair := range [][2]string{{"emails", "news"}, {"stack", "heap"}} {
		f.wantText("33 {}", `
			with plain as (
				select p.proname, regexp_replace(replace(p.prosrc, $2, $1), q.id::text, 'ID', 'g') as text, q.name = $1 as first
				  from pg_proc p join penstock._queue q on p.proname ~ format('^(_|dequeue_)%s([.]|$)', q.name)
				 where p.pronamespace = 'penstock'::regnamespace and q.name in ($1, $2))
			select concat_ws(' ', count(*), coalesce(array_agg(a.proname) filter (where b.text is distinct from a.text), '{}'))
			  from plain a left join plain b on not b.first and b.proname = replace(a.proname, $1, $2) where a.first`, pair[0], pair[1])
	}
}

// functionOrder is the place of each function's name by goldenOrder.
func functionOrder(t *testing.T) map[string]int {
	t.Helper()
	order := map[string]int{}
	add := func(name string) {
		if _, known := order[name]; !known {
			order[name] = len(order) + 1
		}
	}
	for _, name := range goldenOrder.own {
		add("{" + name + "}")
	}
	for _, name := range goldenOrder.files {
		text, err := os.ReadFile(filepath.Join("schema", "functions", name+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if m := made.FindStringSubmatch(line); m != nil {
				if strings.HasPrefix(m[2], "{") && strings.Contains(name, "inbox") {
					m[2] = "inbox " + m[2]
				}
				add(m[2])
			}
		}
	}
	return order
}

type golden struct {
	*fixture
	said  comments
	order map[string]int
	files map[uint32]string // of the functions that stand word for word in one
	out   strings.Builder
}

// madeFromFiles runs the files of functions again, which must make the functions that exist, with their arguments and settings. Then a text
// that is found in its file needs no second one.
func (g *golden) madeFromFiles() {
	g.Helper()
	const definitions = "select p.oid, p.prosrc, pg_get_functiondef(p.oid) as definition from pg_proc p where p.pronamespace = 'penstock'::regnamespace"
	type function struct {
		OID                uint32
		Source, Definition string
	}
	all := func(sql string) []function {
		rows, err := g.Conn.Query(g.Ctx, sql)
		g.Must(err)
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
		g.Must(err)
		return found
	}
	before := map[uint32]string{}
	for _, fn := range all(definitions) {
		before[fn.OID] = fn.Definition
	}
	named := strings.NewReplacer("{schema}", "penstock", "{prefix}", "'penstock.'")
	version := fmt.Sprint(g.Number("select max(version_id) from penstock._migration"))
	names, err := filepath.Glob("schema/functions/*.sql")
	g.Must(err)
	g.files = map[uint32]string{}
	for _, name := range names {
		bytes, err := os.ReadFile(name)
		g.Must(err)
		text := strings.ReplaceAll(string(bytes), "{schema version}", version)
		tx, err := g.Conn.Begin(g.Ctx)
		g.Must(err)
		_, err = tx.Exec(g.Ctx, "set local search_path = penstock, pg_temp; set local check_function_bodies = off; delete from _template; "+text+"; set local search_path to default", pgx.QueryExecModeSimpleProtocol)
		g.Must(err)
		for _, fn := range all(definitions + " and p.xmin = pg_current_xact_id()::xid") {
			if fn.Definition != before[fn.OID] {
				g.Errorf("%s makes another function than is there:\n%s\nthere is\n%s", name, fn.Definition, before[fn.OID])
			} else if fn.Source != "" && (strings.Contains(text, fn.Source) || strings.Contains(named.Replace(text), fn.Source)) {
				g.files[fn.OID] = filepath.ToSlash(name)
			}
		}
		g.Must(tx.Rollback(g.Ctx))
	}
}

func (g *golden) write(relations, functions string) string {
	g.out.Reset()
	for _, part := range []string{goldenTypes, goldenTables, goldenSequences, goldenViews} {
		for _, text := range g.column(strings.ReplaceAll(part, "{which}", relations)) {
			g.out.WriteString("\n" + text + "\n")
		}
	}
	inFile := false
	for _, fn := range g.functionsOf(functions) {
		if fn.file == "" || !inFile {
			g.out.WriteString("\n")
		}
		if inFile = fn.file != ""; inFile {
			fmt.Fprintf(&g.out, "-- function %s: %s%s\n", fn.signature, fn.file, strings.Replace(strings.TrimSpace(fn.rights), "--", ",", 1))
		} else {
			g.out.WriteString(fn.comment + fn.definition + fn.rights)
		}
	}
	return g.out.String()
}

type goldenFunction struct{ name, signature, file, comment, definition, rights string }

// madeAs are the names that some functions have where they are written.
var madeAs = map[string]string{"{flags}": "{raise}"}

var macro = regexp.MustCompile(`\{(\w+)\}`)

var partOf = regexp.MustCompile(`^(?:_(?:emails|stack|archived)|__inbox\.\d+)\.(\w+)$|^(dequeue_)\w+$`)

func (g *golden) functionsOf(which string) (all []goldenFunction) {
	g.Helper()
	type row struct {
		OID                                  uint32
		Name, Signature, Definition, Comment string
		Public                               bool
	}
	rows, err := g.Conn.Query(g.Ctx, `select p.oid, p.proname, format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), rtrim(pg_get_functiondef(p.oid), E'\n'), coalesce(obj_description(p.oid, 'pg_proc'), ''), `+public+` and (p.prosecdef or not starts_with(p.proname, '_'))
		from pg_proc p where p.pronamespace = 'penstock'::regnamespace and `+which+` order by p.proname, pg_get_function_identity_arguments(p.oid)`)
	g.Must(err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	g.Must(err)
	for _, r := range found {
		name := r.Name
		if m := partOf.FindStringSubmatch(name); m != nil {
			name = "{" + m[1] + strings.TrimSuffix(m[2], "_") + "}"
			if strings.HasPrefix(r.Name, "__inbox") {
				name = "inbox " + name
			}
		}
		fn := goldenFunction{name: name, signature: r.Signature, file: g.files[r.OID], definition: r.Definition + ";\n"}
		if said := cmp.Or(r.Comment, g.said["function "+name], g.said["function "+madeAs[name]]); said == "" {
			g.Errorf("nothing says what %s does: write a comment above it, see CONTRIBUTING", r.Name)
		} else {
			said = strings.ReplaceAll(said, cmp.Or(madeAs[name], name), name)
			fn.comment = commented(macro.ReplaceAllString(said, "$1"))
		}
		if r.Public {
			fn.rights = "-- everybody may execute it\n"
		}
		all = append(all, fn)
	}
	slices.SortStableFunc(all, func(a, b goldenFunction) int {
		return cmp.Compare(cmp.Or(g.order[a.name], 10000), cmp.Or(g.order[b.name], 10000))
	})
	return all
}

// commented is a text as lines of a comment.
func commented(text string) string {
	var b strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		if width+1+len(word) > 130 {
			b.WriteByte('\n')
			width = 0
		}
		if width == 0 {
			b.WriteString("--")
			width = 2
		}
		b.WriteString(" " + word)
		width += 1 + len(word)
	}
	return b.String() + "\n"
}

// difference is what diff shows of two texts, with two lines around each change, and the name of what it is in.
func difference(from, to string) string {
	a, b := strings.Split(from, "\n"), strings.Split(to, "\n")
	alike := make([][]int32, len(a)+1) // lines that a[i:] and b[j:] share, in order
	for i := range alike {
		alike[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				alike[i][j] = alike[i+1][j+1] + 1
			} else {
				alike[i][j] = max(alike[i+1][j], alike[i][j+1])
			}
		}
	}
	type line struct{ mark, text, in string }
	var lines []line
	in := ""
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			if m := beginsWhat.FindStringSubmatch(a[i]); m != nil {
				in = m[1]
			}
			lines = append(lines, line{" ", a[i], in})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && alike[i+1][j] >= alike[i][j+1]:
			lines = append(lines, line{"-", a[i], in})
			i++
		default:
			lines = append(lines, line{"+", b[j], in})
			j++
		}
	}
	const around = 2
	var out strings.Builder
	shown := -1
	for n, l := range lines {
		near := lines[max(0, n-around):min(len(lines), n+around+1)]
		if !slices.ContainsFunc(near, func(l line) bool { return l.mark != " " }) {
			continue
		}
		if shown != n-1 || n == 0 {
			fmt.Fprintf(&out, "@@ %s @@\n", cmp.Or(l.in, "at the beginning"))
		}
		shown = n
		out.WriteString(strings.TrimRight(l.mark+l.text, " ") + "\n")
	}
	return out.String()
}

var beginsWhat = regexp.MustCompile(`^(?:CREATE OR REPLACE FUNCTION|create table|create sequence) penstock\.("[^"]*"|\w+)`)

// goldenTypes are the composite ones.
const goldenTypes = `select format(E'create type penstock.%I as (\n%s\n);', c.relname,
		(select string_agg(format('    %I %s', a.attname, format_type(a.atttypid, a.atttypmod)), E',\n' order by a.attnum) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0))
	from pg_class c where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'c' and {which} order by c.relname`

// goldenTables are tables with what belongs to them, partitions behind what they are partitions of.
const goldenTables = `
	select format('create table %s', c.oid::regclass)
		|| case when c.relispartition then format(' partition of %s %s', i.inhparent::regclass, pg_get_expr(c.relpartbound, c.oid))
		   else (select format(E' (\n%s\n)', string_agg(x.line, E',\n' order by x.n)) from (
				select a.attnum as n, concat('    ', quote_ident(a.attname), ' ', format_type(a.atttypid, a.atttypmod),
					case when a.attcollation not in (0, 100) then ' collate ' || a.attcollation::regcollation end,
					case when a.attidentity <> '' then case a.attidentity when 'a' then ' generated always as identity' else ' generated by default as identity' end
					     else case when a.attnotnull then ' not null' end || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') end,
					case when not a.attnotnull then ' default ' || pg_get_expr(d.adbin, d.adrelid) end) as line
				  from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
				 where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
				union all
				select 1000 + row_number() over (order by k.conname), '    ' || pg_get_constraintdef(k.oid) from pg_constraint k where k.conrelid = c.oid and k.contype not in ('n', 't')) x) end
		|| coalesce(' partition by ' || pg_get_partkeydef(c.oid), '')
		|| coalesce(' with (' || (select string_agg(o, ', ') from (select unnest(c.reloptions) union all select 'toast.' || unnest(t.reloptions) from pg_class t where t.oid = c.reltoastrelid) o(o)) || ')', '') || ';'
		|| coalesce((select string_agg(format(E'\nalter table %s alter column %I set storage %s;', c.oid::regclass, a.attname, case a.attstorage when 'p' then 'plain' when 'e' then 'external' end), '' order by a.attnum)
			from pg_attribute a join pg_type t on t.oid = a.atttypid where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attstorage <> t.typstorage and not c.relispartition), '')
		|| coalesce((select string_agg(format(E'\nalter table %s alter column %I set compression %s;', c.oid::regclass, a.attname, case a.attcompression when 'l' then 'lz4' else 'pglz' end), '' order by a.attnum)
			from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and a.attcompression <> ''), '')
		|| coalesce((select string_agg(E'\n' || pg_get_indexdef(x.indexrelid) || ';', '' order by x.indexrelid::regclass::text)
			from pg_index x where x.indrelid = c.oid and not x.indisprimary and not exists (select from pg_constraint k where k.conindid = x.indexrelid)
			 and not exists (select from pg_inherits h where h.inhrelid = x.indexrelid)), '')
		|| case c.relreplident when 'f' then format(E'\nalter table %s replica identity full;', c.oid::regclass)
			when 'i' then (select format(E'\nalter table %s replica identity using index %s;', c.oid::regclass, x.indexrelid::regclass) from pg_index x where x.indrelid = c.oid and x.indisreplident) else '' end
		|| coalesce((select string_agg(E'\n' || pg_get_triggerdef(g.oid) || ';' || case g.tgenabled when 'A' then format(E'\nalter table %s enable always trigger %I;', c.oid::regclass, g.tgname) else '' end, '' order by g.tgname)
			from pg_trigger g where g.tgrelid = c.oid and not g.tgisinternal and g.tgparentid = 0), '')
		|| case when c.relrowsecurity then format(E'\nalter table %s enable row level security;', c.oid::regclass) else '' end
		|| coalesce((select string_agg(format(E'\ncreate policy %I on %s for select using (%s);', y.polname, c.oid::regclass, pg_get_expr(y.polqual, y.polrelid)), '') from pg_policy y where y.polrelid = c.oid), '')
		|| coalesce((select string_agg(format(E'\ncomment on column %s.%I is %L;', c.oid::regclass, a.attname, d.description), '' order by a.attnum)
			from pg_attribute a join pg_description d on d.objoid = a.attrelid and d.objsubid = a.attnum and d.classoid = 'pg_class'::regclass where a.attrelid = c.oid and a.attnum > 0), '')
	  from pg_class c left join pg_inherits i on i.inhrelid = c.oid
	 where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'p') and {which}
	 order by coalesce(i.inhparent::regclass::text, c.oid::regclass::text), c.relispartition, length(c.relname), c.relname`

// goldenViews are those with their columns' comments.
const goldenViews = `
	select format(E'create view %s as\n%s', c.oid::regclass, pg_get_viewdef(c.oid)) || coalesce((select string_agg(format(E'\ncomment on column %s.%I is %L;', c.oid::regclass, a.attname, col_description(c.oid, a.attnum)), '' order by a.attnum)
			from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and col_description(c.oid, a.attnum) <> ''), '')
	  from pg_class c where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'v' and {which} order by c.relname`

// goldenSequences are those that no column's identity has, with what they hold, as registers and counters do from the beginning on.
const goldenSequences = `
	select string_agg(format('create sequence %s%s%s;%s', c.oid::regclass, case when s.seqincrement <> 1 then ' increment by ' || s.seqincrement end,
			case when s.seqmin <> 1 then ' minvalue ' || s.seqmin end || case when s.seqmax < 9223372036854775807 and s.seqincrement > 0 then ' maxvalue ' || s.seqmax else '' end,
			case when c.relname ~ '^__inbox.*(since|next|low)$|[.]done_turn$' then ' -- holds a time'
			     else ' -- ' || nullif(concat_ws('. ', 'holds ' || pg_sequence_last_value(c.oid), obj_description(c.oid, 'pg_class')), '') end), E'\n' order by c.relname)
	  from pg_class c join pg_sequence s on s.seqrelid = c.oid
	 where c.relnamespace = 'penstock'::regnamespace and {which} and not exists (select from pg_depend d where d.objid = c.oid and d.classid = 'pg_class'::regclass and d.deptype = 'i')
	having count(*) > 0`
