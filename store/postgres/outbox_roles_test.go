package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
)

// role makes a role that can log in and do nothing, and returns a URL for it.
func (f *fixture) role() (name, asRole string) {
	f.Helper()
	name = fmt.Sprintf("penstock_test_%08x", rand.Uint32())
	f.Exec("create role " + name + " login")
	f.Cleanup(func() {
		exec(f, f.URL, "drop owned by "+name)
		exec(f, f.URL, "drop role "+name)
	})
	u, err := url.Parse(f.URL)
	f.Must(err)
	u.User = url.User(name)
	return name, u.String()
}

// A function that every role may call runs with the caller's rights, and is internal or takes a name. One that
// came with a later migration, or with a queue or an inbox, must not slip through.
func TestEverybodyMayCallNothingOfOneThing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Must(f.store.CreateQueue(f.Ctx, "mails", penstock.FIFO))
	f.Must(f.store.CreateInbox(f.Ctx, "billing", time.Hour))
	rows, err := f.Conn.Query(f.Ctx, `select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'penstock'::regnamespace and has_function_privilege('public', p.oid, 'execute')
		  and (p.prosecdef or p.proname ~ '^(dequeue_|create_|set_|drop_|grant_|publish)')
		order by p.proname collate "C"`)
	f.Must(err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	f.Must(err)
	harmless := "penstock._check_functions(text) penstock.publish_after(text,bigint[],text,anycompatible,text,text,jsonb,text,text) penstock.set_group(text,text,integer,integer,interval,integer,integer)"
	if got := strings.Join(found, " "); got != harmless {
		t.Errorf("everybody may call %s; want no more than %s", got, harmless)
	}
}

func TestProducerCanPublishAndNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Must(f.store.CreateOutbox(f.Ctx, "secret"))
	name, asRole := f.role()
	f.Exec("select penstock.grant_producer('orders', $1)", name)
	conn, err := pgx.Connect(f.Ctx, asRole)
	f.Must(err)
	defer conn.Close(f.Ctx)

	store := openStore(t, asRole, postgres.Options{})
	f.Must(store.Publish(f.Ctx, "orders", penstock.Message{Payload: []byte("by Go")}))
	for _, allowed := range []string{
		"insert into penstock.orders (key, topic, payload) values ('k', 't', 'by INSERT')",
		"select penstock.publish('orders', 'by publish', key => 'k', headers => '{\"a\":\"b\"}')",
	} {
		if _, err := conn.Exec(f.Ctx, allowed); err != nil {
			t.Errorf("%s: %v", allowed, err)
		}
	}
	for _, denied := range []string{
		"select * from penstock.orders",
		"delete from penstock.orders",
		"update penstock.orders set payload = ''",
		"truncate penstock.orders",
		"insert into penstock.orders (xid, payload) values ('3', 'x')",
		"insert into penstock.orders (seq, payload) values (1, 'x')",
		"insert into penstock.orders (slot, payload) values (1, 'x')",
		"insert into penstock.secret (payload) values ('x')",
		"select penstock.publish('secret', 'x')",
		`select setval('penstock."_orders.slot"', 3)`,
		`select nextval('penstock."_orders.slot"')`,
		`select setval('penstock."_orders.seq"', 1)`,
		"select penstock._reclaim('orders', 0)",
		"select penstock._rotate('orders', true)",
		"select penstock.create_outbox('x')",
		"select penstock.drop_outbox('orders')",
		"select penstock.grant_producer('secret', current_user)",
		"select * from penstock._cursor",
		"insert into penstock._cursor select * from penstock._cursor",
	} {
		_, err := conn.Exec(f.Ctx, denied)
		if err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: got %v, want permission denied", denied, err)
		}
	}
	f.wantDrain(f.subscribe(), "by Go", "by INSERT", "by publish")
	if _, err := store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "x"}); err == nil || !strings.Contains(err.Error(), "penstock outbox grant ROLE --relay") {
		t.Errorf("Subscribe by a producer: got %v, want an error that names the right to relay", err)
	}
}

// A role without the right to inboxes reads that there are none, for as long as that is so.
func TestRoleSeesThatThereIsNoInbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	name, asRole := f.role()
	if _, err := openStore(t, asRole, postgres.Options{}).Inboxes(f.Ctx); err == nil {
		t.Error("a role that may do nothing reads inboxes")
	}
	f.Exec("select penstock.grant_relay($1)", name)
	store := openStore(t, asRole, postgres.Options{})
	if all, err := store.Inboxes(f.Ctx); err != nil || len(all) > 0 {
		t.Errorf("without an inbox it reads %v, %v", all, err)
	}
	f.Must(f.store.CreateInbox(f.Ctx, "billing", time.Hour))
	if _, err := store.Inboxes(f.Ctx); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Errorf("with an inbox that was not granted: %v, want permission denied", err)
	}
}

func TestRelayRoleCanRelayAndNotPublish(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	name, asRole := f.role()
	f.Exec("select penstock.grant_relay($1)", name)
	f.Must(f.store.CreateOutbox(f.Ctx, "later"))
	store := openStore(t, asRole, small)
	for _, outbox := range []string{"orders", "later"} {
		f.Must(f.store.Publish(f.Ctx, outbox, penstock.Message{Payload: []byte("one")}, penstock.Message{Payload: []byte("two")}))
		src, err := store.Subscribe(f.Ctx, driver.Subscribe{Outbox: outbox, Subscription: "sub", Holder: "relay"})
		f.Must(err)
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{{}, {Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}}}))
		n, err := store.RetryDeadLetters(f.Ctx, admin.DeadLetterQuery{Outbox: outbox, Subscription: "sub", Seqs: []int64{b.Messages[1].Seq}})
		f.Must(err)
		if n != 1 {
			t.Errorf("%d dead letters retried, want 1", n)
		}
		b = f.fetchSome(src)
		f.refuse(src, b, time.Microsecond)
		f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: f.fetchSome(src)}))
		replayed, err := store.Replay(f.Ctx, admin.Replay{Outbox: outbox, Subscription: "sub"})
		f.Must(err)
		if b := f.fetchSome(src); len(b.Messages) != int(replayed) {
			t.Errorf("%d messages replayed, want %d", len(b.Messages), replayed)
		} else {
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		}
		f.Must(src.(driver.SinkReporter).ReportSink(f.Ctx, time.Now(), "no"))
		f.Must(src.Close(f.Ctx))
	}
	f.Eventually("the relay's role gives space back", func() bool {
		f.Must(store.Maintain(f.Ctx, "orders"))
		return f.Number("select count(*) from penstock._segments('orders') where pg_relation_size(oid) > 0") == 0
	})
	if _, err := store.Status(f.Ctx); err != nil {
		t.Errorf("Status: %v", err)
	}
	if err := store.Publish(f.Ctx, "orders", penstock.Message{}); err == nil || !strings.Contains(err.Error(), "42501") {
		t.Errorf("Publish by the relay's role: got %v, want permission denied", err)
	}
	conn, err := pgx.Connect(f.Ctx, asRole)
	f.Must(err)
	defer conn.Close(f.Ctx)
	for _, denied := range []string{"update penstock.orders set payload = ''", "delete from penstock.orders", "truncate penstock.orders", "delete from penstock._cursor",
		"update penstock._subscription set sink_error = ''"} {
		if _, err := conn.Exec(f.Ctx, denied); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: got %v, want permission denied", denied, err)
		}
	}
}

// A relay's role sees what keeps a segment, and examines the database without a part left out but for sessions of other roles: that takes a
// right of the server.
func TestRelayRoleSeesWhatHoldsSegments(t *testing.T) {
	t.Parallel()
	f := newFixture(t, small)
	name, asRole := f.role()
	f.Exec("select penstock.grant_relay($1)", name)
	store := openStore(t, asRole, small)
	kept := func(by, found, next string) {
		t.Helper()
		held, err := store.HeldSegments(f.Ctx)
		f.Must(err)
		if len(held) != 1 || fmt.Sprint(held[0].By()) != by {
			t.Errorf("segments are held: %+v, want one, by %s", held, by)
		}
		examined, err := store.Examine(f.Ctx, doctor.Options{Old: time.Nanosecond})
		f.Must(err)
		segments := false
		for _, is := range examined.Findings {
			switch {
			case is.Check == doctor.CheckSegments:
				segments = strings.HasSuffix(is.Found, found) && strings.HasSuffix(is.Next, next) && (is.Severity == doctor.OK) == (next == "")
			case is.Check == doctor.CheckNotLookedAt && (is.Severity != doctor.Unknown || !strings.Contains(is.Next, "grant pg_read_all_")):
				t.Errorf("not looked at: %+v", is)
			}
		}
		if !segments {
			t.Errorf("no finding says that %q, and as next step %q: %+v", found, next, examined.Findings)
		}
	}
	f.insert(f.Conn, "k", "one")
	f.Exec("select penstock._rotate('orders', true)")
	kept("[no subscription: the outbox has none yet]", "because the outbox has no subscription yet", "penstock outbox drop orders")
	var sources []driver.Source
	for _, subscription := range []string{"quick", "slow"} {
		src, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: subscription, Holder: "test"})
		f.Must(err)
		sources = append(sources, src)
	}
	settle := func(src driver.Source) {
		t.Helper()
		b := f.fetchSome(src)
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		f.Must(src.Close(f.Ctx))
	}
	kept("[subscription quick subscription slow]", "because of subscription quick, subscription slow", "start the relay of the subscription; see the relays and the backlog: penstock status orders")
	settle(sources[0])
	kept("[subscription slow]", "because of subscription slow", "start the relay of the subscription; see the relays and the backlog: penstock status orders")
	f.Exec("update penstock._outbox set retain_age = '1 day'")
	kept("[subscription slow retention]", "because of subscription slow", "start the relay of the subscription; see the relays and the backlog: penstock status orders")
	settle(sources[1])
	kept("[retention]", "no segment of an outbox is held for long", "")
	f.Exec("update penstock._outbox set retain_age = null")
	kept("[]", "no segment of an outbox is held for long", "")
	if _, err := store.VacuumPins(f.Ctx); err == nil || !strings.Contains(err.Error(), "grant pg_read_all_stats to "+name) {
		t.Errorf("VacuumPins without the right to see sessions of other roles: got %v, want an error that names the grant", err)
	}
}

// A role whose right to relay was revoked does not get it back, neither with a later outbox nor with a migration.
func TestRevokedRelayStaysRevoked(t *testing.T) {
	t.Parallel()
	for _, revoked := range []string{
		"drop owned by %s",
		"revoke all on all tables in schema penstock from %s",
	} {
		t.Run(revoked, func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			name, asRole := f.role()
			kept, asKept := f.role()
			f.Exec("select penstock.grant_relay($1)", name)
			f.Exec("select penstock.grant_relay($1)", kept)
			f.Exec(fmt.Sprintf(revoked, name))
			f.Exec("grant usage on schema penstock to " + name)
			f.Must(f.store.CreateOutbox(f.Ctx, "later"))
			f.Exec("update penstock._functions set hash = 'of other functions'")
			f.Must(f.store.Migrate(f.Ctx))
			conn, err := pgx.Connect(f.Ctx, asRole)
			f.Must(err)
			defer conn.Close(f.Ctx)
			for _, denied := range []string{"select * from penstock.orders", "select * from penstock.later", "select * from penstock._dead_letter", "insert into penstock._cursor select * from penstock._cursor"} {
				if _, err := conn.Exec(f.Ctx, denied); err == nil || !strings.Contains(err.Error(), "42501") {
					t.Errorf("%s after the right was revoked: got %v, want permission denied", denied, err)
				}
			}
			src, err := openStore(t, asKept, postgres.Options{}).Subscribe(f.Ctx, driver.Subscribe{Outbox: "later", Subscription: "sub", Holder: "relay"})
			if err != nil {
				t.Fatalf("another role that may relay, on a later outbox: %v", err)
			}
			f.Must(src.Close(f.Ctx))
		})
	}
}

// A string payload arrives as it is written, backslashes and all.
func TestPublishText(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	const payload = `{"path": "C:\\temp", "lines": "a\nb", "quote": "\"", "e": "\u00e9"}`
	f.Exec("select penstock.publish('orders', '" + payload + "')")
	f.Exec("select penstock.publish('orders', $1::text)", payload)
	f.Exec("select penstock.publish('orders', payload => $1::json::text, key => 'k')", payload)
	f.Exec("select penstock.publish_bytes('orders', convert_to($1, 'UTF8'))", payload)
	f.Exec("insert into penstock.orders (payload) values (convert_to($1, 'UTF8'))", payload)
	f.Exec("select penstock.publish('orders', '{\"a\": \"\\\\\"}'::jsonb)")
	f.wantDrain(f.subscribe(), payload, payload, payload, payload, payload, `{"a": "\\"}`)
}

func TestDropSubscription(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "one")
	f.Exec("select penstock.drop_subscription('orders', 'sub')")
	if err := src.Renew(f.Ctx); !errors.Is(err, penstock.ErrFenced) {
		t.Errorf("Renew of a dropped subscription: got %v, want ErrFenced", err)
	}
	f.wantDrain(f.subscribe(), "one") // a new one of the name begins anew
	if _, err := f.Conn.Exec(f.Ctx, "select penstock.drop_subscription('orders', 'other')"); err == nil || !strings.Contains(err.Error(), "42704") {
		t.Errorf("got %v, want undefined_object", err)
	}
}

func TestPublishThroughDatabaseSQL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	db, err := sql.Open("pgx", f.URL)
	f.Must(err)
	defer db.Close()
	outbox := f.store.Outbox("orders")
	msgs := make([]penstock.Message, 2500)
	want := make([]string, len(msgs))
	for i := range msgs {
		want[i] = fmt.Sprint(i)
		msgs[i] = penstock.Message{Key: "k", Payload: []byte(want[i]), Headers: map[string]string{"n": want[i]}}
	}
	tx, err := db.BeginTx(f.Ctx, nil)
	f.Must(err)
	f.Must(outbox.PublishSQL(f.Ctx, tx, msgs...))
	f.Must(tx.Commit())
	tx, err = db.BeginTx(f.Ctx, nil)
	f.Must(err)
	f.Must(outbox.PublishSQL(f.Ctx, tx, penstock.Message{Payload: []byte("never")}))
	f.Must(tx.Rollback())
	var field *penstock.FieldError
	if err := outbox.PublishSQL(f.Ctx, aloneSQL{db}, penstock.Message{}, penstock.Message{Key: "\x00"}); !errors.As(err, &field) || field.Field != "key" {
		t.Errorf("got %v, want an error about the key", err)
	}
	f.Must(outbox.PublishSQL(f.Ctx, aloneSQL{db}, penstock.Message{}))
	f.wantDrain(f.subscribe(), append(want, "")...)
}

func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := freshDatabase(t)
	store := openStore(t, url, postgres.Options{Schema: `odd "schema"; drop schema x --`})
	if err := store.CreateOutbox(ctx, "orders"); !errors.Is(err, penstock.ErrNotMigrated) || !strings.Contains(err.Error(), "penstock migrate") {
		t.Errorf("before Migrate: got %v, want ErrNotMigrated with the next step", err)
	}
	if err := store.Publish(ctx, "orders", penstock.Message{}); !errors.Is(err, penstock.ErrNotMigrated) {
		t.Errorf("Publish before Migrate: got %v, want ErrNotMigrated", err)
	}
	for range 2 {
		if err := store.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.CreateOutbox(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	exec(t, url, `insert into "odd ""schema""; drop schema x --"._migration (version_id, is_applied) values (999, true)`)
	newer := openStore(t, url, postgres.Options{Schema: `odd "schema"; drop schema x --`})
	for what, err := range map[string]error{"Migrate": newer.Migrate(ctx), "CreateOutbox": newer.CreateOutbox(ctx, "x")} {
		if !errors.Is(err, penstock.ErrNewerSchema) || !strings.Contains(err.Error(), "999") {
			t.Errorf("%s on a newer schema: got %v, want ErrNewerSchema", what, err)
		}
	}
}
