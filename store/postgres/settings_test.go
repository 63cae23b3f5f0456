package postgres_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// withSettings is a database in which these are set, before anything is made in it.
func withSettings(t *testing.T, settings ...string) string {
	url := freshDatabase(t)
	for _, s := range settings {
		exec(t, url, "do $$ begin execute format('alter database %I set "+s+"', current_database()); end $$")
	}
	return url
}

// escapes reports whether standard_conforming_strings can be off, which PostgreSQL 19 refuses.
func escapes(db *postgrestest.DB) bool {
	return db.Number("select current_setting('server_version_num')::int") < 190000
}

// In a database where a backslash in a literal is an escape all is made that is made elsewhere, and works.
func TestWithoutStandardConformingStrings(t *testing.T) {
	t.Parallel()
	const make = `select penstock.create_outbox('or\ders'), penstock.create_queue('jobs', 'lifo'), penstock.create_queue('ot\her'), penstock.create_inbox('bil\ling')`
	fresh := newFixture(t, postgres.Options{})
	if !escapes(fresh.DB) {
		t.Skip("PostgreSQL 19 refuses standard_conforming_strings = off: it has no such database")
	}
	f := fixtureOn(t, withSettings(t, "standard_conforming_strings = off", "backslash_quote = off"), postgres.Options{})
	f.Exec(strings.ReplaceAll(make, `\`, `\\`))
	fresh.Exec(make)
	f.Exec("set standard_conforming_strings = on") // in which definitions are also shown
	wantSameCatalogue(f.DB, fresh.DB)
	f.Exec("reset standard_conforming_strings")

	f.Exec("select penstock.schedule('jobs', 's', '*/5 4 * * mon-fri', 'x'), penstock.set_queue('jobs', max_attempts => 10)")
	f.Exec(`select penstock.publish($1, payload => '{"a":1}', key => 'k', topic => 't', headers => '{"a":"\\"b"}')`, `or\ders`)
	for _, queue := range []string{"jobs", `ot\her`} {
		f.Exec(`select penstock.enqueue($1, $2, key => 'k', dedup_key => 'd', headers => '{"a":"b"}')`, queue, `a\b`)
		f.Exec("select penstock.enqueue_many($1, '{a,b,c}')", queue)
		for _, end := range []string{"penstock.ack($1, lease)", "penstock.retry($1, lease, after => '0', error => 'no')", "penstock.dead_letter($1, lease, 'no')", "penstock.release($1, lease)"} {
			f.Exec("select "+end+" from penstock.claim($1)", queue)
		}
		f.Exec("select penstock.maintain_queue($1), penstock.pause_queue($1), penstock.resume_queue($1)", queue)
		if n := f.Number("select count(*) from penstock.dequeue($1, 10)", queue); n != 2 {
			t.Errorf("%d jobs of %s are left, want 2", n, queue)
		}
	}
	f.Exec(`select penstock.inbox($1, 'm'), penstock.inbox_in_order($1, 'k', 'n', 'before', null, 'x', interval '0'), penstock.maintain_inbox($1)`, `bil\ling`)
	if n := f.Number("select count(*) from penstock.inbox_due($1)", `bil\ling`); n != 1 {
		t.Errorf("%d messages came that were held, want 1", n)
	}

	src, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: `or\ders`, Subscription: `s\`, Holder: "test"})
	f.Must(err)
	t.Cleanup(func() { _ = src.Close(context.Background()) })
	f.wantDrain(src, `{"a":1}`)
	f.Must(f.store.Maintain(f.Ctx, `or\ders`))
	_, err = f.store.Status(f.Ctx)
	f.Must(err)
	_, err = f.store.Queue(`ot\her`).Enqueue(f.Ctx, penstock.NewJob{Payload: []byte(`\`), Key: `\`})
	f.Must(err)
	f.Must(f.store.DropQueue(f.Ctx, `ot\her`))
	f.Exec("select penstock.drop_inbox($1), penstock.drop_outbox($2)", `bil\ling`, `or\ders`)
}

// Keys are compared by their bytes: an index in the order of a locale does not outlive its change.
func TestKeyIndexesOutliveALocale(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('jobs'), penstock.create_inbox('billing')")
	var bad string
	f.Must(f.Conn.QueryRow(f.Ctx, `select coalesce(string_agg(i.indexrelid::regclass::text, ', '), '')
		from pg_index i join pg_class c on c.oid = i.indexrelid, unnest(i.indkey, i.indcollation) k(at, coll)
		join pg_attribute a on true
		where c.relnamespace = 'penstock'::regnamespace and a.attrelid = i.indrelid and a.attnum = k.at and k.coll = 'pg_catalog."default"'::regcollation
		  and a.attname not in ('name', 'outbox', 'consumer', 'source', 'role', 'ring')`).Scan(&bad))
	if bad != "" {
		t.Errorf("these indexes depend on the locale: %s", bad)
	}
}

// A file that the URL names and that is not there is named; the password is not.
func TestDatabaseURLNamesAMissingFile(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "root.crt")
	_, err := postgres.Open(t.Context(), "postgres://app:secret@localhost/shop?sslmode=verify-full&sslrootcert="+missing, postgres.Options{})
	if err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "sslrootcert") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error about %s", err, missing)
	}
}

// A relay whose role may not tell clusters apart is told which right is missing.
func TestWithoutPgControlSystem(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	name, asRole := f.role()
	f.Exec("select penstock.grant_relay($1)", name)
	f.Exec("revoke execute on function pg_control_system() from public")
	store := openStore(t, asRole, postgres.Options{})
	_, err := store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	if err == nil || !strings.Contains(err.Error(), "grant execute on function pg_control_system()") {
		t.Errorf("got %v, want the grant that is missing", err)
	}
}

// A source that has nothing to do keeps its connections, however little the server likes idle ones, and so
// does a store's pool.
func TestIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	url := f.URL
	f.Exec("do $$ begin execute format('alter database %I set idle_session_timeout = 1000', current_database()); end $$")
	f.store = openStore(t, url, postgres.Options{})
	src := f.subscribe()
	pooled := openStore(t, url+"&application_name=pooled", postgres.Options{})
	_, err := pooled.Status(f.Ctx)
	f.Must(err)
	for range 2 { // each is a session that the server ended for being idle
		conn, err := pgx.Connect(f.Ctx, url)
		f.Must(err)
		_, err = conn.PgConn().ReceiveMessage(f.Ctx)
		if err == nil {
			_, err = conn.PgConn().ReceiveMessage(f.Ctx)
		}
		if err == nil {
			t.Fatal("an idle session goes on")
		}
	}
	if n := f.Number("select count(*) from pg_stat_activity where application_name = 'pooled' and datname = current_database()"); n == 0 {
		t.Error("the pool has lost its connections")
	}
	b, err := src.Fetch(f.Ctx, plenty)
	f.Must(err)
	if b.Rewound {
		t.Error("the source has lost its connections")
	}
	f.Must(src.Renew(f.Ctx))
}

// Where a table has no index for a statement that may not read it in sequence, that counts as very expensive.
// PostgreSQL would compile it, which takes a third of a second. dequeue_NAME is called most, has an index for
// all that it does, and is spared the setting.
func TestWhatMayNotScanIsNotCompiled(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.CreateInbox(f.Ctx, "mails", 0))
	var compiled []string
	f.Must(f.Conn.QueryRow(f.Ctx, `select coalesce(array_agg(proname), '{}') from pg_proc
		where pronamespace = 'penstock'::regnamespace and proconfig @> '{enable_seqscan=off}' and not proconfig @> '{jit=off}'
		  and proname not like 'dequeue%'`).Scan(&compiled))
	if len(compiled) > 0 {
		t.Errorf("%q may not scan, and may be compiled", compiled)
	}
}
