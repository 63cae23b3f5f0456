package postgres_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/store/postgres"
)

const (
	queuesPage    = "docs/guides/queues.md"
	functionsPage = "docs/reference/queues.md"
	inboxPage     = "docs/guides/inbox.md"
	inboxesPage   = "docs/reference/inboxes.md"
)

var docFunction = regexp.MustCompile("(?m)^\\| `([a-z_]+)\\(([a-z_, ]*)\\)` ")

// The statements of docs/guides/queues.md and docs/reference/queues.md run, one after the other, and their functions take the
// arguments that they name.
func TestQueueDocs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	role, _ := f.role()
	for _, b := range docblock.Of(t, queuesPage, "sql") {
		if _, err := f.Conn.PgConn().Exec(f.Ctx, strings.NewReplacer("'shop'", "'"+role+"'", "1234567", "(select lease from penstock._lease limit 1)").Replace(b)).ReadAll(); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
	id := f.Number("select coalesce(max(seq), 0) from penstock.emails")
	for _, b := range docblock.Of(t, functionsPage, "sql") {
		f.Exec(b, pgx.QueryExecModeSimpleProtocol)
	}
	f.wantText("report:42 1", "select key || ' ' || count(*) from penstock._scheduled where key = 'report:42' group by key") // three calls, put off at last
	f.wantText("1", "select count(*)::text from penstock.emails where seq > $1 and headers ->> 'penstock-timeout' = '10' and headers ->> 'penstock-max-attempts' = '3'", id)
	f.hasFunctions(queuesPage, 3)
	f.hasFunctions(functionsPage, 29)
}

// docs/operations/restore.md copies the jobs of one queue: those that wait, are delayed, wait for their key, run, and run together with others.
func TestRestoreDocs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('emails'), penstock.create_queue('others')")
	f.Exec("select penstock.enqueue_many('emails', array(select 'together ' || i from generate_series(1, 10) i)), penstock.enqueue('others', 'x')")
	f.Exec("select penstock.ack_claim('emails', '{}', 10)")
	f.Exec("select penstock.ack('emails', lease + 2) from penstock._lease where jobs is not null") // the first
	f.Exec("select penstock.enqueue_many('emails', '{a,b}', keys => '{k,k}')")
	f.Exec("select penstock.claim('emails', 5)")
	f.Exec("select penstock.enqueue('emails', 'delayed', not_before => now() + interval '1 h'), penstock.enqueue('emails', 'ready', headers => '{\"h\": \"1\"}')")
	blocks := docblock.Of(t, "docs/operations/restore.md", "sql")
	f.Exec(blocks[0])
	f.Exec("select penstock.drop_queue('emails')")
	f.Exec("select penstock.create_queue('emails')")
	f.Exec(blocks[1], pgx.QueryExecModeSimpleProtocol)
	f.wantText("together 2,together 3,together 4,together 5,together 6,together 7,together 8,together 9,together 10,a,b,ready", "select string_agg(convert_from(payload, 'UTF8'), ',' order by seq) from penstock.emails")
	f.wantText("delayed", "select string_agg(convert_from(payload, 'UTF8'), ',') from penstock._scheduled where due < 'infinity'")
	for _, b := range docblock.Of(t, "docs/internals/background.md", "sql") {
		f.Exec(b, pgx.QueryExecModeSimpleProtocol)
	}
}

// hasFunctions checks that the functions exist that a page's tables name, with their arguments.
func (f *fixture) hasFunctions(page string, least int) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(docblock.Root(f), page))
	f.Must(err)
	functions := docFunction.FindAllStringSubmatch(string(text), -1)
	if len(functions) < least {
		f.Fatalf("%s: %d functions found", page, len(functions))
	}
	for _, m := range functions {
		var found bool
		f.Must(f.Conn.QueryRow(f.Ctx, `select exists (select from pg_proc p where p.pronamespace = 'penstock'::regnamespace and p.proname = $1
			and coalesce(p.proargnames[1:p.pronargs], '{}') = string_to_array($2, ', '))`, m[1], m[2]).Scan(&found))
		if !found {
			f.Errorf("%s: there is no function %s(%s)", page, m[1], m[2])
		}
	}
}

// The commands that the page gives to psql enqueue a job, claim it and end it by its lease. Its last block drops queues, outboxes and inboxes of any name, and then
// the schema.
func TestQueueDocsInPsql(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec(`select penstock.create_queue('it''s "odd"'), penstock.create_outbox('Or ders'), penstock.create_inbox('bill''ing')`)
	blocks := docblock.Of(t, queuesPage, "psql")
	f.Exec("select penstock.create_queue('emails')")
	inPsql(f.DB, blocks[0])
	if n := f.Number("select ready + running + dead from penstock.queue_status('emails')"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
	inPsql(f.DB, blocks[1])
	if f.Number("select count(*) from pg_namespace where nspname = 'penstock'") != 0 {
		t.Error("the schema is there")
	}
}

// The statements of docs/guides/inbox.md run, one after the other, and return what the page says.
func TestInboxDocs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	role, _ := f.role()
	run := func(block string) (rows []string) { // those of all statements, their columns with spaces between
		t.Helper()
		results, err := f.Conn.PgConn().Exec(f.Ctx, strings.ReplaceAll(block, "'billing_app'", "'"+role+"'")).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", block, err)
		}
		for _, r := range results {
			for _, row := range r.Rows {
				var columns []string
				for _, c := range row {
					columns = append(columns, string(c))
				}
				rows = append(rows, strings.TrimSpace(strings.Join(columns, " ")))
			}
		}
		return rows
	}
	wants := func(block string, want ...string) {
		t.Helper()
		if got := run(block); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s\nreturns %q, want %q", block, got, want)
		}
	}
	blocks := docblock.Of(t, inboxPage, "sql")
	if len(blocks) != 6 {
		t.Fatalf("%d blocks", len(blocks))
	}
	wants(blocks[0], "", "")
	wants(blocks[1], "t")
	wants(blocks[1], "f")
	f.Exec("select penstock.drop_inbox('billing')") // it is made again, with another time
	wants(blocks[2], "", "")
	wants("select keep::text from penstock.inboxes()", "2 days")
	wants("select penstock.inbox('billing', 'b')", "t")
	wants(blocks[3], "a", "c")

	columns := func(block string) string { // those that the page explains
		return strings.Replace(block, "select * from", "select message_id, key, headers, convert_from(payload, 'UTF8'), gap, missing, late from", 1)
	}
	wants(columns(blocks[4]))
	f.Exec("select penstock.inbox_release('billing', message_id => 'm3')") // as if the time were over
	wants(columns(blocks[5]), `m3 account 7 {"traceparent": "…"} {"amount": 10} t m2 f`)
	wants(columns(strings.NewReplacer("'m3'", "'m4'", "'m2'", "'m3'").Replace(blocks[4])), `m4 account 7 {"traceparent": "…"} {"amount": 10} f  f`)
	f.hasFunctions(inboxesPage, 9)
}
