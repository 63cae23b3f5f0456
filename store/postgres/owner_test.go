package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// owner is a role of this process that is not a superuser.
var owner = fmt.Sprintf("penstock_owner_%016x", rand.Uint64())

// ownedServer is where owner was made, "" before.
var ownedServer string

// owned are databases as an administrator gives them out who trusts no role: schema public is closed, and the
// owner has a schema for the business and may make others. There is one of an odd name, with Penstock's tables.
var owned = testserver.Template{Fill: func(rawURL string) error {
	ctx, cancel := context.WithTimeout(context.Background(), postgrestest.Deadline)
	defer cancel()
	conn, err := pgx.Connect(ctx, rawURL)
	if err != nil {
		return err
	}
	ownedServer = maintenance(rawURL)
	for _, sql := range []string{"create role " + owner + " login", "revoke all on schema public from public", "create schema business authorization " + owner} {
		_, err = conn.Exec(ctx, sql)
		if err != nil {
			break
		}
	}
	if err == nil {
		err = closeDatabase(ctx, conn)
	}
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	store, err := postgres.Open(ctx, asRole(rawURL, owner), postgres.Options{Schema: oddSchema})
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close())
}}

// dropOwned is for when all tests have run.
func dropOwned() error {
	if err := owned.Drop(); err != nil || ownedServer == "" {
		return err
	}
	conn, err := pgx.Connect(context.Background(), ownedServer)
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), "drop role if exists "+owner)
	return errors.Join(err, conn.Close(context.Background()))
}

// closeDatabase revokes the rights that every role has in a new database; a copy of one does not inherit
// that.
func closeDatabase(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `do $$ begin
		execute format('revoke all on database %I from public', current_database());
		execute format('grant connect, create on database %I to `+owner+`', current_database());
		execute format('alter database %I set search_path = business', current_database());
	end $$`)
	return err
}

// ownedDatabase is a copy, for tests that prepare it as a superuser; asRole makes it the owner's.
func ownedDatabase(t testing.TB) string {
	url := owned.Database(t)
	db := postgrestest.On(t, url)
	db.Must(closeDatabase(db.Ctx, db.Conn))
	return url
}

// maintenance is the database that each server has.
func maintenance(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(err) // the test server's
	}
	u.Path = "/postgres"
	return u.String()
}

func asRole(rawURL, role string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(err) // the test server's
	}
	u.User = url.User(role)
	return u.String()
}

// The error names the missing privilege, and says who must grant it.
func TestMigrateSaysWhichPrivilegeIsMissing(t *testing.T) {
	t.Parallel()
	url := ownedDatabase(t)
	db := postgrestest.On(t, url)
	f := &fixture{DB: db}
	role, asRole := f.role()
	var database string
	f.Must(db.Conn.QueryRow(f.Ctx, "select current_database()").Scan(&database))
	refused := func(schema string, parts ...string) {
		t.Helper()
		err := openStore(t, asRole, postgres.Options{Schema: schema}).Migrate(f.Ctx)
		var hint *penstock.HintError
		if !errors.As(err, &hint) {
			t.Errorf("got %v, want an error with a hint", err)
			return
		}
		for _, part := range parts {
			if !strings.Contains(hint.Err.Error()+": "+hint.Hint, part) {
				t.Errorf("%q is not in %q: %q", part, hint.Err, hint.Hint)
			}
		}
	}
	f.Exec(fmt.Sprintf("grant connect on database %s to %s", database, role))
	refused("", "create on database "+database, fmt.Sprintf("grant create on database %s to %s", database, role))
	refused(oddSchema, "run penstock migrate as the schema's owner, "+owner)
	f.Exec(fmt.Sprintf("grant usage, create on schema %s to %s", pgx.Identifier{oddSchema}.Sanitize(), role))
	refused(oddSchema, "run penstock migrate as the schema's owner, "+owner)
	f.Exec(fmt.Sprintf("grant create on database %s to %s; revoke usage on language plpgsql from public", database, role), pgx.QueryExecModeSimpleProtocol)
	refused("", "usage on language plpgsql", "grant usage on language plpgsql to "+role)
	f.Exec("grant usage on language plpgsql to public")
	f.Must(openStore(t, asRole, postgres.Options{}).Migrate(f.Ctx))
}

// The error of a relay also names the function that it lacks, where an administrator has revoked
// that.
func TestRelaySaysWhichPrivilegeIsMissing(t *testing.T) {
	t.Parallel()
	url := ownedDatabase(t)
	exec(t, url, "revoke execute on function pg_control_system() from public")
	store := openStore(t, asRole(url, owner), postgres.Options{Schema: oddSchema})
	if err := store.CreateOutbox(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	_, err := store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	var hint *penstock.HintError
	if !errors.As(err, &hint) || !strings.Contains(hint.Hint, "grant execute on function pg_control_system()") {
		t.Errorf("got %v, want a hint that names pg_control_system()", err)
	}
}

// An object that a superuser makes or migrates in a schema of another role belongs to that role, which can then do
// everything with it.
func TestWhatAnotherRoleMakesIsTheOwners(t *testing.T) {
	t.Parallel()
	url := ownedDatabase(t)
	f := &fixture{DB: postgrestest.On(t, url), store: openStore(t, asRole(url, owner), postgres.Options{Schema: oddSchema})}
	super := openStore(t, url, postgres.Options{Schema: oddSchema})
	schema := pgx.Identifier{oddSchema}.Sanitize()
	wantOwners := func(after string) {
		t.Helper()
		others := f.text(`select concat_ws(', ', (select string_agg(c.oid::regclass::text, ', ') from pg_class c where c.relnamespace = $1::text::regnamespace and c.relowner <> $2::text::regrole),
			(select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p where p.pronamespace = $1::text::regnamespace and p.proowner <> $2::text::regrole),
			(select string_agg(y.oid::regtype::text, ', ') from pg_type y where y.typnamespace = $1::text::regnamespace and y.typowner <> $2::text::regrole))`, schema, owner)
		if others != "" {
			t.Errorf("after the superuser's %s these are not the owner's: %.500s", after, others)
		}
	}
	f.Must(super.CreateOutbox(f.Ctx, "orders"))
	wantOwners("CreateOutbox")
	f.Must(super.CreateQueue(f.Ctx, "mails", penstock.FIFO))
	f.Must(super.CreateQueue(f.Ctx, "stack", penstock.LIFO))
	wantOwners("CreateQueue")
	f.Must(super.SetQueue(f.Ctx, "mails", penstock.QueueSettings{KeepDone: new(time.Hour)}))
	wantOwners("SetQueue")
	f.Must(super.CreateInbox(f.Ctx, "billing", time.Hour))
	wantOwners("CreateInbox")
	// A queue of before it was so, and what a later version adds.
	f.Exec(strings.ReplaceAll(`alter table {}."_mails.0" owner to current_user; alter sequence {}."_mails.seq" owner to current_user; alter function {}."_mails.maintain" owner to current_user;
		alter view {}.queue_internals owner to current_user; alter type {}.job owner to current_user; alter table {}._queue owner to current_user; update {}._functions set hash = 'old'`, "{}", schema), pgx.QueryExecModeSimpleProtocol)
	f.Must(super.Migrate(f.Ctx))
	wantOwners("Migrate")

	f.Must(f.store.Publish(f.Ctx, "orders", penstock.Message{Payload: []byte("1")}))
	for _, name := range []string{"mails", "stack"} {
		q := f.store.Queue(name)
		_, err := q.Enqueue(f.Ctx, penstock.NewJob{Payload: []byte("1")})
		f.Must(err)
		jobs, err := q.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute})
		f.Must(err)
		if len(jobs) != 1 {
			t.Fatalf("%d jobs of %s claimed, want 1", len(jobs), name)
		}
		_, err = q.Ack(f.Ctx, jobs[0].Lease)
		f.Must(err)
		f.Eventually("the owner's maintenance gives the space of "+name+" back", func() bool {
			exec(t, asRole(url, owner), "select "+schema+".advance_queue($1, '1 minute')", name)
			return f.Number("select pg_relation_size($1)", schema+`."_`+name+`.0"`) == 0
		})
	}
	f.Must(f.store.Migrate(f.Ctx))
	for _, sql := range []string{"select {}.inbox('billing', 'm1')", "select {}.maintain_inbox('billing')", "select {}.drop_inbox('billing')",
		"select {}.drop_queue('mails'), {}.drop_queue('stack')", "select {}.drop_outbox('orders')"} {
		exec(t, asRole(url, owner), strings.ReplaceAll(sql, "{}", schema))
	}
}
