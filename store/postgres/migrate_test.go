package postgres_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// catalogue is what Penstock's schema is made of, in a form that two databases can be compared by.
func catalogue(db *postgrestest.DB) string {
	db.Helper()
	var text string
	db.Must(db.Conn.QueryRow(db.Ctx, `
		with schema as (select oid from pg_namespace where nspname not in ('public', 'information_schema') and nspname !~ '^pg_'),
		     relation as (select c.* from pg_class c join schema s on s.oid = c.relnamespace),
		     acl as (select 'execute on ' || p.proname || ' ' || p.oid::regprocedure as what, coalesce(p.proacl, acldefault('f', p.proowner)) as acl, p.proowner as owner from pg_proc p join schema s on s.oid = p.pronamespace
		             union all select c.relname, c.relacl, c.relowner from relation c
		             union all select 'schema', n.nspacl, n.nspowner from pg_namespace n join schema s on s.oid = n.oid)
		select string_agg(line, E'\n' order by line) from (
		select format('%s(%s) returns %s %s %s %s %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prosecdef, p.provolatile, p.proconfig, md5(p.prosrc)) as line
		  from pg_proc p join schema s on s.oid = p.pronamespace
		union all
		select format('%s %s %s %s %s', c.relname, c.relkind, c.relreplident, c.reloptions, c.relrowsecurity) from relation c
		union all
		select format('%s.%s %s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation, a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid))
		  from relation c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
		 where c.relkind in ('r', 'p', 'c') and a.attnum > 0 and not a.attisdropped
		union all
		select format('%s from %s by %s, %s to %s', c.relname, q.seqstart, q.seqincrement, q.seqmin, q.seqmax) from relation c join pg_sequence q on q.seqrelid = c.oid
		union all
		select pg_get_indexdef(i.indexrelid) from pg_index i join relation c on c.oid = i.indrelid
		union all
		select format('%s: %s', c.relname, translate(pg_get_constraintdef(k.oid), '()', '')) from pg_constraint k join relation c on c.oid = k.conrelid where k.contype <> 'n' -- which only newer servers list
		union all
		select pg_get_triggerdef(g.oid) from pg_trigger g join relation c on c.oid = g.tgrelid where not g.tgisinternal
		union all
		select format('%s: policy %s %s', c.relname, y.polname, pg_get_expr(y.polqual, y.polrelid)) from pg_policy y join relation c on c.oid = y.polrelid
		union all
		select format('%s: %s to %s', a.what, x.privilege_type, case when x.grantee = a.owner then 'the owner' else x.grantee::regrole::text end) from acl a, aclexplode(a.acl) x) all_of_it`).Scan(&text))
	return text
}

func wantSameCatalogue(db, other *postgrestest.DB) {
	db.Helper()
	have := map[string]bool{}
	for line := range strings.SplitSeq(catalogue(db), "\n") {
		have[line] = true
	}
	for line := range strings.SplitSeq(catalogue(other), "\n") {
		if !have[line] {
			db.Errorf("missing or different: %s", line)
		}
		delete(have, line)
	}
	for line := range have {
		db.Errorf("too much: %s", line)
	}
}

// restored is a database made of a dump of testdata.
func restored(t *testing.T, name string) *postgrestest.DB {
	t.Helper()
	db := postgrestest.On(t, freshDatabase(t))
	file, err := os.Open(filepath.Join("testdata", name))
	db.Must(err)
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	db.Must(err)
	dump, err := io.ReadAll(unzipped)
	db.Must(err)
	_, err = db.Connect().Exec(db.Ctx, string(dump), pgx.QueryExecModeSimpleProtocol)
	db.Must(err)
	return db
}

// What changed functions are, existing queues and inboxes get with the next migrate.
func TestMigrateRenewsFunctions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('jobs'), penstock.create_inbox('billing')")
	before := catalogue(f.DB)
	f.breakFunctions()
	if catalogue(f.DB) == before {
		t.Fatal("nothing was broken")
	}
	f.Must(f.store.Migrate(f.Ctx))
	if catalogue(f.DB) != before {
		t.Error("functions are not what they were")
	}
	// And nothing is done where nothing has changed.
	was := f.Number("select xmin::text::bigint from penstock._functions")
	f.Must(f.store.Migrate(f.Ctx))
	if f.Number("select xmin::text::bigint from penstock._functions") != was {
		t.Error("functions that had not changed were made anew")
	}
}

// breakFunctions leaves functions as an older program might have done: those of queues and inboxes fail, and a queue has one that is gone.
func (f *fixture) breakFunctions() {
	f.Helper()
	f.Exec(`do $$
		declare made text;
		begin
			for made in select format('create or replace function %s(%s) returns %s language plpgsql as %L', p.oid::regproc, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
			                          'begin raise exception ''old''; end')
			              from pg_proc p join pg_language l on l.oid = p.prolang
			             where p.pronamespace = 'penstock'::regnamespace and p.prokind = 'f' and l.lanname = 'plpgsql' and p.proname ~ '^__?[^.]+[.]' loop
				execute made;
			end loop;
			for made in select format('create function %I.%I() returns void language plpgsql as %L', 'penstock', format('_%s.gone', q.name), 'begin end') from penstock._queue q loop
				execute made;
			end loop;
			-- shared ones of earlier versions, of which one needs the next
			create function penstock._unsettled_by_any(outbox text, segment regclass) returns boolean language sql return true;
			create function penstock._needed(outbox text, segment regclass) returns boolean language sql return penstock._unsettled_by_any(outbox, segment);
			create or replace function penstock._behind(outbox text, slot int) returns boolean language sql return penstock._needed(outbox, 'pg_class');
			create function penstock._wants_read_committed() returns void language plpgsql as 'begin end';
		end $$`)
	f.Exec("update penstock._functions set hash = 'old'")
}

// A transaction that is under way and ends later makes the drop of its tables wait, not fail.
func TestDropSchemaInADeadlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Must(testserver.DropInDeadlock(t, f.URL, "penstock", func() error { return f.store.DropSchema(f.Ctx) }))
	f.Exec("create schema penstock") // the name is free
}
