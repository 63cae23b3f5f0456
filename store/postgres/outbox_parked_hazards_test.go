package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
)

func refusedOnce(text string) []penstock.Failure {
	return []penstock.Failure{{Attempt: 1, At: time.Now(), Err: text}}
}

// settleAll gives every message of a batch the same verdict.
func (f *fixture) settleAll(src driver.Source, v driver.Verdict, batches ...driver.Batch) {
	f.Helper()
	var settled []driver.Settled
	for _, b := range batches {
		verdicts := make([]driver.Verdict, len(b.Messages))
		for i := range verdicts {
			verdicts[i] = v
		}
		settled = append(settled, driver.Settled{Batch: b, Verdicts: verdicts})
	}
	f.Must(storetest.Settle(f.Ctx, src, settled...))
}

func (f *fixture) replay() int64 {
	f.Helper()
	n, err := f.store.Replay(f.Ctx, admin.Replay{Outbox: "orders", Subscription: "sub"})
	f.Must(err)
	return n
}

// Two replays of one message, both refused permanently, are settled in one write.
func TestDeadTwiceInOneWrite(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.Exec("insert into penstock.orders (topic, payload) values ('t', 'x')")
	f.wantDrain(src, "x")
	f.replay()
	f.Exec(`insert into penstock._replay (subscription, outbox, pos, to_seq, created_from, created_to, done, upto, upto_pos, system) select subscription, outbox, pos, to_seq, created_from, created_to, done, upto, upto_pos, system from penstock._replay`)
	f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Failures: refusedOnce("no")}, f.fetchSome(src), f.fetchSome(src))
	found, err := f.store.DeadLetters(f.Ctx, admin.DeadLetterQuery{Outbox: "orders", Subscription: "sub"})
	f.Must(err)
	if len(found) != 1 {
		t.Errorf("%d dead letters, want 1", len(found))
	}
}

// A write that a lost connection left behind reaches the server, with the right epoch, after the
// source has continued. It changes nothing. Otherwise the source would not know which messages are
// settled and parked.
func TestWriteThatArrivesLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "one")
	newest := func() int64 { return f.Number("select max(n) from penstock._cursor") }
	before := newest()
	late := func(expected int64) (took bool) {
		f.Must(f.Conn.QueryRow(f.Ctx, `select penstock._write_cursor(subscription, epoch, holder, 15000000, done, low, upto, upto_low, pos, settled, system, since, $1, timeline, ahead)
			is not null from penstock._cursor where n = $2`, expected, before).Scan(&took))
		return took
	}
	f.wantDrain(src, "one")
	if late(before) {
		t.Error("a write that follows a row which is not the newest took effect")
	}
	// One that is in time, and of which the source has not heard: it starts anew.
	if !late(newest()) {
		t.Error("a write that follows the newest row did not take effect")
	}
	if err := src.Renew(f.Ctx); err == nil || errors.Is(err, penstock.ErrFenced) {
		t.Errorf("got %v, want an error after which the source goes on", err)
	}
	f.insert(f.Conn, "k", "two")
	f.Eventually("the source has started anew", func() bool {
		b, err := src.Fetch(f.Ctx, plenty)
		return err == nil && b.Rewound && len(b.Messages) > 0
	})
}

// A replay whose last page is full is over only when that page is settled.
func TestReplayThatEndsOnAPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.Exec("insert into penstock.orders (key, payload) select 'k' || i, convert_to(i::text, 'UTF8') from generate_series(1, 4) i")
	f.drain(src)
	f.replay()
	var batches []driver.Batch
	two := driver.Limit{Messages: 2, Bytes: 1 << 20}
	for range 8 { // also past the end
		b, err := src.Fetch(f.Ctx, two)
		f.Must(err)
		if len(b.Messages) > 0 {
			batches = append(batches, b)
		}
	}
	f.Must(storetest.Settle(f.Ctx, src, driver.Settled{Batch: batches[0]}))
	for range 5 {
		f.Exec("select penstock._rotate('orders', true)")
		f.Must(f.store.Maintain(f.Ctx, "orders"))
	}
	postgres.LoseSession(src)
	f.wantDrain(src, "3", "4")
	if n := f.Number("select count(*) from penstock._replay"); n != 0 {
		t.Error("the replay is delivered, but not over")
	}
}

// Times travel as text; the session's own style must not matter.
func TestDateStyle(t *testing.T) {
	t.Parallel()
	f := fixtureOn(t, postgrestest.Database(t)+"&timezone=Asia/Kolkata&datestyle=SQL", postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "x")
	for range 3 {
		f.refuse(src, f.fetchSome(src), time.Microsecond)
	}
	f.settleAll(src, driver.Verdict{}, f.fetchSome(src))
}

// jsonb cannot hold what an error's text may.
func TestFailureWithNUL(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.insert(f.Conn, "k", "x")
	f.settleAll(src, driver.Verdict{Outcome: driver.Parked, Failures: refusedOnce("a\x00b")}, f.fetchSome(src))
}

// A dead letter may hold a key that was parked after it was fetched.
func TestHoldOfAKeyParkedSince(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	var batches []driver.Batch
	for i := range 2 {
		f.insert(f.Conn, "k", fmt.Sprint(i))
		batches = append(batches, f.fetchSome(src))
	}
	f.settleAll(src, driver.Verdict{Outcome: driver.Parked, RetryIn: time.Hour, Failures: refusedOnce("no")}, batches[0])
	f.settleAll(src, driver.Verdict{Outcome: driver.Dead, Hold: true, Failures: refusedOnce("no")}, batches[1])
	keys, err := f.store.ParkedKeys(f.Ctx, "orders", "sub", 10)
	f.Must(err)
	if len(keys) != 1 || !keys[0].Held || keys[0].Messages != 1 {
		t.Errorf("parked keys: %+v, want one that is held, with the first message", keys)
	}
}

// Who reads along sees the stream, and its end.
func TestEphemeralComesToTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.insert(f.Conn, "k", "x")
	src, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "tail", Ephemeral: true})
	f.Must(err)
	defer src.Close(f.Ctx)
	f.fetchSome(src)
	for range 5 {
		b, err := src.Fetch(f.Ctx, plenty)
		f.Must(err)
		if len(b.Messages) > 0 || b.More {
			t.Fatalf("%d messages, more: %v; want the end", len(b.Messages), b.More)
		}
	}
}
