package postgres_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

// templates are the files that make a table whose name they are given.
var templates = map[string]string{"manage_outboxes.sql": "OUTBOX", "create_queue.sql": "QUEUE"}

const schemaReference = "../../docs/reference/schema.md"

// docs/reference/schema.md is what an administrator reads before installing this: every table, column, type and function as
// the database has them, with the comments of the SQL files. make schema-reference writes it.
func TestSchemaReference(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_outbox('OUTBOX', segments => 2), penstock.create_queue('QUEUE', segments => 2), penstock.create_inbox('INBOX')")
	r := &reference{fixture: f, said: schemaComments(t)}
	got := r.write()
	if *update {
		f.Must(os.WriteFile(schemaReference, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(schemaReference)
	f.Must(err)
	if got != string(want) {
		t.Errorf("docs/reference/schema.md is not what the database says: run make schema-reference\n%s", firstDifference(string(want), got))
	}
}

func firstDifference(a, b string) string {
	old, now := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(old), len(now)) {
		if old[i] != now[i] {
			return fmt.Sprintf("line %d\n  in the file:  %s\n  in the database: %s", i+1, old[i], now[i])
		}
	}
	return fmt.Sprintf("%d lines in the file, %d of the database", len(old), len(now))
}

// comments are what the SQL files say: of "table _queue", "function publish", "column _queue.name".
type comments map[string]string

var (
	made   = regexp.MustCompile(`^\s*create (?:or replace )?(table|type|function) (?:if not exists )?("?(?:[\w.%$]+|\{\w+\})"?)`)
	column = regexp.MustCompile(`^\s+(?:add column (?:if not exists )?|rename column \w+ to )?([a-z_]+)(?:;|\s+[a-z_][^-]*)\s*-- (.*)$`)
	alters = regexp.MustCompile(`^alter table (\w+)`)
)

func schemaComments(t *testing.T) comments {
	t.Helper()
	all := comments{}
	files, err := filepath.Glob("schema/0*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	functions, err := filepath.Glob("schema/functions/*.sql")
	if err != nil || len(functions) == 0 {
		t.Fatal(err, functions)
	}
	for _, name := range append(files, functions...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var block []string
		in := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			switch said, isComment := strings.CutPrefix(strings.TrimSpace(line), "--"); {
			case isComment:
				block = append(block, strings.TrimSpace(said))
				continue
			case made.MatchString(line):
				m := made.FindStringSubmatch(line)
				key := m[1] + " " + m[2]
				if strings.HasPrefix(m[2], "{") && strings.Contains(name, "inbox") { // a queue may have one of that name
					key = m[1] + " inbox " + m[2]
				}
				if all[key] == "" {
					all[key] = strings.Join(block, " ")
				}
				if in = m[2]; strings.Contains(in, "%") {
					in = templates[filepath.Base(name)]
				}
			case alters.MatchString(line):
				in = alters.FindStringSubmatch(line)[1]
			case column.MatchString(line):
				m := column.FindStringSubmatch(line)
				all["column "+in+"."+m[1]] = strings.TrimSpace(strings.Trim(m[2], ". "))
			}
			block = nil
		}
	}
	return all
}

// Each function has a comment, which does not refer to the one before it.
var pronoun = regexp.MustCompile(`(?i)^(it|its|this|that|these|those|they|the same|who|whoever|what)\b`)

type reference struct {
	*fixture
	said comments
	out  strings.Builder
}

func (r *reference) write() string {
	r.say(`# The schema on PostgreSQL

This page lists all that ` + "`penstock migrate`" + ` makes. ` + "`make schema-reference`" + ` writes it from a database and from the
comments of the SQL files in ` + "`store/postgres/schema`" + `, and a test compares it with both.

All of it is in the schema ` + "`penstock`" + ` (` + "`--schema`" + `). Names that begin with an underscore are internal: read them, but do not
write to them or call them. OUTBOX, QUEUE and INBOX stand for the names of your outboxes, queues and inboxes.

## Functions for all roles

PUBLIC may call these. Those that name a queue or an inbox need a right to it, which the ` + "`grant_`" + ` functions below give.`)
	r.functions("not starts_with(p.proname, '_') and " + public)
	r.say(`## Functions for the owner

For the role that owns the schema, and for roles that it grants them to.`)
	r.functions("not starts_with(p.proname, '_') and p.proname <> 'dequeue_QUEUE' and not " + public)
	r.say("## Views\n\nThe owner of the schema reads here the state that Penstock keeps. [Inside PostgreSQL](../internals/README.md) explains it.")
	r.columnsOf("c.relkind = 'v'", "view")
	r.say("## Types that they return")
	r.columnsOf("c.relkind = 'c'", "type")
	r.say(`## Your outboxes, queues and inboxes

Each has one or more tables, their segments, and sequences. The sequences are registers, because a sequence can be
written without a transaction. A queue and an inbox also have separate functions, and the grants are rights to call them.`)
	r.columnsOf("c.relname in ('OUTBOX', 'QUEUE') or c.relname ~ '^__inbox.*[.]0$' and c.relkind = 'r'", "table")
	r.list("Segments, sequences and views", `select string_agg(format('%s %s', case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end, c.relname), E'\n' order by c.relkind, c.relname)
		from pg_class c where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'S', 'v') and c.relname ~ 'OUTBOX|QUEUE|INBOX|_inbox.*[0-9]'`)
	r.list("Functions", "select string_agg(format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), E'\n' order by p.proname) from pg_proc p where p.pronamespace = 'penstock'::regnamespace and p.proname ~ 'QUEUE|INBOX|_inbox.*[0-9]'")
	r.say("## Internal tables")
	r.columnsOf(`c.relkind in ('r', 'p') and not c.relispartition and starts_with(c.relname, '_') and c.relname !~ 'OUTBOX|QUEUE|INBOX|[0-9]'`, "table")
	r.say("## Internal functions\n")
	for _, name := range r.column(`select distinct p.proname from pg_proc p where p.pronamespace = 'penstock'::regnamespace and starts_with(p.proname, '_') and p.proname !~ 'QUEUE|INBOX|[0-9]' order by 1`) {
		r.say("- `" + name + "`" + separated(macro.ReplaceAllString(firstSentence(strings.TrimPrefix(r.said["function "+name], name+" ")), "$1")))
	}
	return r.out.String()
}

const public = "(p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))"

func separated(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func firstSentence(text string) string {
	if i := strings.Index(text, ". "); i >= 0 {
		return text[:i+1]
	}
	return text
}

func (r *reference) say(text string) { r.out.WriteString(text + "\n") }

func (f *fixture) column(sql string) []string {
	f.Helper()
	rows, err := f.Conn.Query(f.Ctx, sql)
	f.Must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.Must(err)
	return all
}

func (r *reference) functions(which string) {
	type function struct{ Name, Arguments, Result, Says string }
	rows, err := r.Conn.Query(r.Ctx, `select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), coalesce(obj_description(p.oid, 'pg_proc'), '')
		from pg_proc p where p.pronamespace = 'penstock'::regnamespace and `+which+` order by 1, 2`)
	r.Must(err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	r.Must(err)
	last := ""
	for _, f := range all {
		if f.Name != last {
			r.say("\n### " + f.Name)
		}
		last = f.Name
		if f.Says == "" || pronoun.MatchString(f.Says) {
			r.Errorf("%s(%s) says %q: say what it does, with comment on function, and begin with the verb", f.Name, f.Arguments, f.Says)
		}
		r.say("\n" + f.Says + "\n")
		r.code(fmt.Sprintf("%s(%s) returns %s", f.Name, f.Arguments, strings.ReplaceAll(f.Result, "penstock.", "")))
	}
	r.say("")
}

func (r *reference) columnsOf(which, kind string) {
	for _, name := range r.column(`select c.relname from pg_class c where c.relnamespace = 'penstock'::regnamespace and (` + which + `) order by c.relname`) {
		r.say("\n### " + name + "\n")
		if said := cmp.Or(r.text("select coalesce(obj_description('penstock."+pgx.Identifier{name}.Sanitize()+"'::regclass, 'pg_class'), '')"), r.said[kind+" "+name]); said != "" {
			r.say(said + "\n")
		}
		r.say("| column | type | |\n| --- | --- | --- |")
		for _, c := range r.column(`select format('%s|%s|%s', a.attname, format_type(a.atttypid, a.atttypmod) || case when a.attnotnull then ', not null' else '' end, col_description(a.attrelid, a.attnum))
			from pg_attribute a where a.attrelid = 'penstock.` + pgx.Identifier{name}.Sanitize() + `'::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum`) {
			column, rest, _ := strings.Cut(c, "|")
			typ, says, _ := strings.Cut(rest, "|")
			r.say(fmt.Sprintf("| `%s` | %s | %s |", column, typ, strings.ReplaceAll(cmp.Or(says, r.said["column "+name+"."+column]), "|", `\|`)))
		}
	}
	r.say("")
}

func (r *reference) list(title, sql string) {
	r.say(title + ":\n")
	r.code(r.column(sql)[0])
	r.say("")
}

func (r *reference) code(text string) { r.say("```text\n" + text + "\n```") }
