package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// drainIDs is drain for the ids, by payload.
func (f *fixture) drainIDs(src driver.Source) map[string]string {
	f.Helper()
	ids := map[string]string{}
	for {
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		if len(b.Messages) == 0 {
			return ids
		}
		for _, m := range b.Messages {
			ids[string(m.Payload)] = m.ID
		}
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
	}
}

// wantOtherIDs ends the test if two messages have one id.
func wantOtherIDs(t *testing.T, sets ...map[string]string) {
	t.Helper()
	of := map[string]string{}
	for _, ids := range sets {
		for payload, id := range ids {
			if other, taken := of[id]; taken && other != payload {
				t.Fatalf("%q is the id of %q and of %q", id, other, payload)
			}
			of[id] = payload
		}
	}
}

// A copy of a database continues with the positions of its original, and with other ids.
func TestIDsInACopyOfTheDatabase(t *testing.T) {
	t.Parallel()
	original := testserver.Template{Fill: func(url string) error {
		ctx := context.Background()
		store, err := postgres.Open(ctx, url, postgres.Options{})
		if err != nil {
			return err
		}
		return errors.Join(store.Migrate(ctx), store.CreateOutbox(ctx, "orders"), store.Publish(ctx, "orders", penstock.Message{}), store.Close())
	}}
	t.Cleanup(func() {
		if err := original.Drop(); err != nil {
			t.Error(err)
		}
	})
	var published []map[string]string
	for n := range 2 {
		url := original.Database(t)
		f := &fixture{DB: postgrestest.On(t, url), store: openStore(t, url, postgres.Options{})}
		src := f.subscribe()
		f.drain(src)
		for i := range 3 {
			f.insert(f.Conn, "k", fmt.Sprintf("%d of %d", i, n))
		}
		published = append(published, f.drainIDs(src))
	}
	if len(published[0]) != 3 || len(published[1]) != 3 {
		t.Fatalf("got %v", published)
	}
	wantOtherIDs(t, published...)
}

// Positions come again after a failover that lost the last transactions, ids do not: who
// deduplicates drops nothing. Everything committed on the survivor comes.
func TestFailoverThatLosesTransactions(t *testing.T) {
	t.Parallel()
	primary := testserver.StartPostgres(t)
	standby, err := primary.NewStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Close() })
	f := fixtureOn(t, primary.URL, postgres.Options{})
	var log bytes.Buffer
	both, err := url.Parse(primary.URL)
	f.Must(err)
	both.Host += "," + hostOf(t, standby.URL)
	f.store = openStore(t, both.String(), postgres.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	src := f.subscribe()
	publish := func(what string) {
		f.Helper()
		// More than the 32 positions that a sequence logs in advance.
		f.Exec("insert into penstock.orders (key, payload) select 'k' || i % 7, convert_to($1 || i, 'UTF8') from generate_series(1, 100) i", what+" ")
	}
	publish("before")
	delivered := f.drainIDs(src)

	// From here on the standby gets nothing.
	f.Exec("alter system reset synchronous_standby_names")
	f.Exec("select pg_reload_conf()")
	other := postgrestest.On(t, standby.URL)
	other.Exec("alter system set primary_conninfo = ''")
	other.Exec("select pg_reload_conf()")
	f.Eventually("the standby is on its own", func() bool {
		return f.Number("select count(*) from pg_stat_replication") == 0 && other.Number("select count(*) from pg_stat_wal_receiver") == 0
	})
	publish("lost")
	lost := f.drainIDs(src)
	high := f.Number("select last_value from penstock.\"_orders.seq\"")

	f.Must(primary.Kill())
	f.Must(standby.Promote())
	f.Conn = other.Conn
	if again := f.Number("select last_value from penstock.\"_orders.seq\""); again >= high {
		t.Fatalf("the failover was to take the sequence back behind %d, but it is at %d: this test shows nothing", high, again)
	}
	publish("after")
	after := map[string]string{}
	f.Eventually("what was published after the failover arrives", func() bool {
		b, err := src.Fetch(f.Ctx, plenty)
		if err != nil {
			return false // the old connections
		}
		for _, m := range b.Messages {
			after[string(m.Payload)] = m.ID
		}
		if len(b.Messages) > 0 {
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		}
		return len(after) >= 100
	})
	for payload := range after {
		if !strings.HasPrefix(payload, "after ") {
			t.Errorf("%q came after the failover", payload)
		}
	}
	wantOtherIDs(t, delivered, lost, after)
	if warned := strings.Count(log.String(), "timeline"); warned != 1 || !strings.Contains(log.String(), "was=1 is=2") {
		t.Errorf("want one warning about the timeline, got %d in:\n%s", warned, log.String())
	}
	f.Must(src.Renew(f.Ctx))
	f.Must(src.Close(f.Ctx))
	f.wantDrain(f.subscribe())
}

// A failover may lose a takeover, and its epoch is then taken again: by another relay, with
// which the first must not share it.
func TestEpochThatIsTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	first := f.subscribe()
	f.Exec("delete from penstock._cursor") // as if the standby had not had it
	second := openStore(t, f.URL, postgres.Options{})
	src, err := second.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "other"})
	f.Must(err)
	if f.Number("select count(distinct epoch) from penstock._cursor") != 1 {
		t.Fatal("the epoch is another one: this test shows nothing")
	}
	postgres.LoseSession(first)
	f.insert(f.Conn, "k", "one")
	if b, err := first.Fetch(f.Ctx, plenty); err == nil || !errors.Is(err, penstock.ErrFenced) {
		t.Errorf("the first reader got %v, %v", b.Messages, err)
	}
	f.wantDrain(src, "one")
	f.Must(src.Close(f.Ctx))
}

// Whatever becomes of a message, its id is the one that it was delivered with first.
func TestIDStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "x")
	ids := []string{}
	note := func(b driver.Batch) driver.Batch {
		ids = append(ids, b.Messages[0].ID)
		return b
	}
	f.refuse(src, note(f.fetchSome(src)), 0)
	f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Failures: refusedOnce("no")}, note(f.fetchSome(src)))
	q := admin.DeadLetterQuery{Outbox: "orders", Subscription: "sub"}
	found, err := f.store.DeadLetters(f.Ctx, q)
	f.Must(err)
	ids = append(ids, found[0].Message.ID)
	_, err = f.store.RetryDeadLetters(f.Ctx, q)
	f.Must(err)
	f.settleAll(src, driver.Verdict{}, note(f.fetchSome(src)))
	f.replay()
	f.settleAll(src, driver.Verdict{}, note(f.fetchSome(src)))
	slices.Sort(ids)
	if len(ids) != 5 || len(slices.Compact(ids)) != 1 {
		t.Errorf("one message had the ids %q", ids)
	}
}
