package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// wantDifferences compares what is found with names, each with what happened to it.
func wantDifferences(t *testing.T, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("the differences are %q, want %q", got, want)
	}
}

func (f *fixture) differences() []string {
	f.Helper()
	differences, err := f.store.CheckSchema(f.Ctx)
	f.Must(err)
	return differences
}

// A function that was changed or dropped is named, whether it is of a queue or of the schema, and the next
// migrate makes it again.
func TestCheckSchemaNamesWhatWasChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec(`select penstock.create_queue('emails'), penstock.create_queue('odd.name "x"', 'lifo'), penstock.create_queue('gone'), penstock.create_inbox('billing'),
		penstock.create_inbox('gone')`)
	f.Exec("select penstock.drop_queue('gone'), penstock.drop_inbox('gone')")
	wantDifferences(t, f.differences())
	before := catalogue(f.DB)

	inbox := f.Number("select id from penstock._inbox")
	f.Exec(`alter function penstock."_emails.ack"(bigint[]) set work_mem = '64MB'`)
	f.Exec(`drop function penstock."dequeue_odd.name ""x"""()`)
	f.Exec(fmt.Sprintf(`alter function penstock."__inbox.%d.first"(text) security invoker`, inbox))
	f.Exec(`create or replace function penstock._q(name text) returns text language sql stable set search_path = penstock, pg_temp as $$ select 'oops' $$`)
	f.Exec("update penstock._template set body = body || ' ' where name = 'lease'; delete from penstock._template where name = 'order'", pgx.QueryExecModeSimpleProtocol)
	wantDifferences(t, f.differences(), fmt.Sprintf("__inbox.%d.first(text) was changed", inbox), "_emails.ack(_int8) was changed", "_q(text) was changed", `dequeue_odd.name "x"() is missing`,
		"the template inbox order is missing", "the template queue lease was changed")

	// A relay and a worker look at what they need themselves.
	for queue, want := range map[string][]string{"": {"_q(text)", "order", "lease"}, "emails": {"_emails.ack", "_q(text)", "order", "lease"}, `odd.name "x"`: {"_q(text)", "dequeue_odd", "order", "lease"}} {
		differences, err := f.store.CheckSchemaOf(f.Ctx, queue)
		f.Must(err)
		wantDifferences(t, differences, want...)
	}

	f.Must(f.store.Migrate(f.Ctx))
	wantDifferences(t, f.differences())
	if catalogue(f.DB) != before {
		t.Error("the functions are not what they were")
	}

	for _, function := range []string{"_hashes(oid[])", "_check_functions(text)"} {
		f.Exec("drop function penstock." + function)
		wantDifferences(t, f.differences(), "_check_functions(text), or one that it calls, is missing")
		f.Must(f.store.Migrate(f.Ctx))
		wantDifferences(t, f.differences())
	}
	f.Exec("drop function penstock._check_functions(text)")
	f.Exec("create function penstock._check_functions(text, out files text, out changed text[]) language sql as $$ select '', '{}'::text[] $$")
	wantDifferences(t, f.differences(), "made by another version")
}

// So are an index, a trigger and a segment of a queue or an outbox. The next migrate makes the first two again.
func TestCheckSchemaNamesMissingParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec(`select penstock.create_queue('emails'), penstock.create_queue('odd.ring "$do$"', 'lifo'), penstock.create_outbox('odd.slot')`)
	name, asRole := f.role()
	f.Exec("select penstock.grant_relay($1)", name)
	wantDifferences(t, f.differences())
	before := catalogue(f.DB)
	f.Exec(`drop index penstock."_emails.1_xid_idx", penstock."_odd.ring ""$do$"".0_group_key_priority_seq_idx", penstock."odd.slot_xid_seq_idx"`)
	f.Exec(`drop trigger zz_validate on penstock.emails; alter table penstock."odd.slot" disable trigger zz_validate`, pgx.QueryExecModeSimpleProtocol)
	want := []string{"index on _emails.1 (xid) is", `index on _odd.ring "$do$".0 (group_key, priority, seq) is`, "index on odd.slot (xid, seq) is", "trigger zz_validate of emails", "trigger zz_validate of odd.slot"}
	wantDifferences(t, f.differences(), want...)
	differences, err := openStore(t, asRole, postgres.Options{}).CheckSchema(f.Ctx)
	f.Must(err)
	wantDifferences(t, differences, want...)
	f.Must(f.store.Migrate(f.Ctx))
	wantDifferences(t, f.differences())
	if catalogue(f.DB) != before {
		t.Error("the parts are not what they were")
	}
	f.Exec(`drop table penstock."_odd.slot.3", penstock._barrier_0, penstock._parked_key_1`)
	f.Exec(`drop table penstock.emails cascade`) // and functions
	found := f.differences()
	wantDifferences(t, found[len(found)-4:], "table _barrier_0 is missing", "table _odd.slot.3 is missing", "table _parked_key_1 is missing", "table emails is missing")
}

// An index of a table that all queues or outboxes share, or of an inbox, is named too, each of them, and the next migrate makes it again.
func TestCheckSchemaNamesEachIndex(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('emails'), penstock.create_inbox('billing')")
	before := catalogue(f.DB)
	rows, err := f.Conn.Query(f.Ctx, `select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indexrelid
		where c.relnamespace = 'penstock'::regnamespace and not exists (select from pg_constraint k where k.conindid = c.oid) and not exists (select from pg_inherits h where h.inhrelid = c.oid)`)
	f.Must(err)
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.Must(err)
	second := slices.IndexFunc(indexes, func(index string) bool { return strings.HasSuffix(index, "idx1") }) // of the same columns of a table: its name says that it came later
	for _, dropped := range [][]string{slices.Delete(slices.Clone(indexes), second, second+1), {indexes[second]}} {
		f.Exec("drop index " + strings.Join(dropped, ", "))
		wantDifferences(t, f.differences(), slices.Repeat([]string{"index on "}, len(dropped))...)
		f.Must(f.store.Migrate(f.Ctx))
		wantDifferences(t, f.differences())
	}
	if len(indexes) < 40 || catalogue(f.DB) != before {
		t.Errorf("the %d indexes are not what they were", len(indexes))
	}
}

// A schema that was restored from a dump counts as unchanged, and so do definitions that session
// settings write otherwise.
func TestCheckSchemaOfARestoredDump(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, server.URL, postgres.Options{})
	f.Exec("select penstock.create_queue('emails'), penstock.create_inbox('billing')")
	copied := postgrestest.On(t, testserver.Database(t, server.URL))
	f.Must(runScript(copied, plainDump(f, server)))
	for _, s := range []string{"intervalstyle = iso_8601", "search_path = penstock", "datestyle = german", "bytea_output = escape"} {
		copied.Exec("do $$ begin execute format('alter database %I set " + s + "', current_database()); end $$")
	}
	store := openStore(t, copied.URL, postgres.Options{})
	differences, err := store.CheckSchema(f.Ctx)
	f.Must(err)
	wantDifferences(t, differences)
}

// pg_restore runs the REVOKE and the GRANT of a function as one request. Without the role, neither is done, and PUBLIC may execute the
// function. The check finds this, and the next migrate takes the right back. With the commands of the page, the copy has the roles and
// their rights.
func TestRestoreDocsInAShell(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	for _, program := range []string{"pg_dumpall", "pg_restore"} {
		if _, err := os.Stat(filepath.Join(server.Bin, program)); err != nil {
			t.Skipf("the server came without %s", program)
		}
	}
	admin := postgrestest.On(t, server.URL)
	admin.Exec("create database shop")
	shop, err := url.Parse(server.URL)
	admin.Must(err)
	shop.Path = "/shop"
	f := fixtureOn(t, shop.String(), postgres.Options{})
	f.Exec("select penstock.create_queue('emails'), penstock.create_inbox('billing')")
	f.Exec("create role gone login")
	f.Exec("select penstock.grant_worker('emails', 'gone'), penstock.grant_consumer('billing', 'gone'), penstock.grant_relay('gone')")
	f.Exec("select penstock.enqueue('emails', 'hello')")
	dir := t.TempDir()
	run := func(lines []string) {
		t.Helper()
		c := osexec.CommandContext(f.Ctx, "sh", "-ec", strings.Join(lines, ""))
		c.Dir = dir
		c.Env = append(os.Environ(), "PATH="+server.Bin+":"+os.Getenv("PATH"), "PGHOST="+shop.Hostname(), "PGPORT="+shop.Port(), "PGUSER="+shop.User.Username())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s%v", out, err)
		}
	}
	lines := strings.SplitAfter(docblock.Of(t, "docs/operations/restore.md", "sh")[0], "\n")
	run(lines[:2]) // the dumps
	f.Exec("drop owned by gone; drop role gone", pgx.QueryExecModeSimpleProtocol)
	copied := postgrestest.On(t, testserver.Database(t, server.URL))
	out, err := osexec.CommandContext(f.Ctx, filepath.Join(server.Bin, "pg_restore"), "--dbname="+copied.URL, filepath.Join(dir, "shop.dump")).CombinedOutput()
	if err == nil {
		t.Fatalf("the restore found the role: the test shows nothing\n%s", out)
	}
	store := openStore(t, copied.URL, postgres.Options{})
	differences, err := store.CheckSchema(f.Ctx)
	f.Must(err)
	open := copied.Number("select count(*) from pg_proc p where p.pronamespace = 'penstock'::regnamespace and p.prosecdef and has_function_privilege('public', p.oid, 'execute')") - 1
	if len(differences) == 0 || int64(len(differences)) != open || !slices.Contains(differences, "the function _emails.claim(int4, interval, text, text, _int8) may be executed by PUBLIC") {
		t.Errorf("PUBLIC may execute %d functions with the owner's rights, the differences are %q", open, differences)
	}
	f.Must(store.Migrate(f.Ctx))
	differences, err = store.CheckSchema(f.Ctx)
	f.Must(err)
	wantDifferences(t, differences)

	admin.Exec("drop database shop with (force)")
	run(lines[2:])
	differences, err = openStore(t, shop.String(), postgres.Options{}).CheckSchema(admin.Ctx)
	admin.Must(err)
	wantDifferences(t, differences)
	shop.User = url.User("gone")
	if n := postgrestest.On(t, shop.String()).Number("select count(*) from penstock.ack_claim('emails', '{}', 10)"); n != 1 {
		t.Errorf("the worker claims %d jobs, want 1", n)
	}
}

// A worker may read nothing of the schema, and sees what changed of it all the same.
func TestCheckSchemaAsAWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('emails')")
	name, asRole := f.role()
	f.Exec("select penstock.grant_worker('emails', $1)", name)
	store := openStore(t, asRole, postgres.Options{})
	differences, err := store.CheckSchemaOf(f.Ctx, "emails")
	f.Must(err)
	wantDifferences(t, differences)
	f.Exec("update penstock._functions set hash = 'another'")
	differences, err = store.CheckSchemaOf(f.Ctx, "emails")
	f.Must(err)
	wantDifferences(t, differences, "made by another version")
}

// What no version leads on from, or has none: neither CheckSchema nor Migrate says "run penstock migrate".
func TestSchemaThatNothingLeadsOnFrom(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	for _, c := range []struct {
		change, hint string
		want         error
	}{
		{"update penstock._migration set version_id = 250", "from before the first release", penstock.ErrOlderSchema},
		{"delete from penstock._migration", "restore it", penstock.ErrBrokenSchema},
		{"alter table penstock._migration rename column version_id to v", "restore it", penstock.ErrBrokenSchema},
	} {
		f.Exec(c.change)
		store := openStore(t, f.URL, postgres.Options{})
		_, checked := store.CheckSchema(f.Ctx)
		for what, err := range map[string]error{"CheckSchema": checked, "Migrate": store.Migrate(f.Ctx)} {
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("%s after %s: got %v, want %v with %q", what, c.change, err, c.want, c.hint)
			}
		}
	}
}
