package sqlite_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// The answer to a commit is lost: the batches are settled already when Settle is
// tried again, and nothing counts twice.
func TestSettledTwiceAfterALostAnswer(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	lose := false
	src, err := sqlite.SubscribeLossy(ctx, s, driver.Subscribe{Outbox: "orders", Subscription: "billing"}, &lose)
	if err != nil {
		t.Fatal(err)
	}
	state := func() (all []string) {
		for _, query := range []string{
			`select position || ' ' || settled || ' ' || settles || ahead from penstock_subscriptions`,
			`select coalesce(group_concat(seq || ' ' || state || ' ' || coalesce(parked_key, '') || head || coalesce(due, '') || coalesce(failures, '') || coalesce(died_at, '')), '') from penstock_entries`,
		} {
			all = append(all, scan[string](t, app, query))
		}
		return all
	}
	refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
	park := driver.Verdict{Outcome: driver.Parked, Failures: refused}
	dead := driver.Verdict{Outcome: driver.Dead, Failures: refused}
	attempt := uint64(0)
	for step, verdicts := range [][]driver.Verdict{
		{park, {Outcome: driver.Parked}, {}}, // of the log
		{park},                               // of the key's head
		{dead},                               // which dies, and the second is due
		{park},
		nil, // and is delivered
	} {
		if step == 0 {
			if err := s.Publish(ctx, "orders", numbered(3)...); err != nil {
				t.Fatal(err)
			}
		}
		b, err := src.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		if err != nil || len(b.Messages) == 0 {
			t.Fatalf("step %d: %v, %v", step, b, err)
		}
		twice := func(st driver.Settled) {
			t.Helper()
			attempt++
			lose = true
			if err := src.Settle(ctx, attempt, st); err == nil {
				t.Fatalf("step %d: no answer was lost", step)
			}
			lose = false
			want := state()
			if err := src.Settle(ctx, attempt, st); err != nil {
				t.Fatalf("step %d, again: %v", step, err)
			}
			if got := state(); !slices.Equal(got, want) {
				t.Errorf("step %d: once settled, it is\n%q\nand twice\n%q", step, want, got)
			}
		}
		if step == 0 { // a part of it first, behind a message that has no verdict
			twice(driver.Settled{Batch: b, Open: true, Verdicts: []driver.Verdict{{Outcome: driver.Undecided}, {Outcome: driver.Undecided}, {}}})
			verdicts[2].Outcome = driver.Undecided
		}
		twice(driver.Settled{Batch: b, Verdicts: verdicts})
	}
}

// A parked key is found whatever is in the key's column: numbers, bytes that are not text, nothing.
// Such keys come from plain INSERTs.
func TestOddKeys(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	odd := []string{`42`, `'42'`, `x'ff00fe'`, `cast(x'ff80' as text)`, `'É'`, `x''`, `''`, `null`, `x'6b'`, `'k'`}
	for range 2 {
		for _, key := range odd {
			mustExec(t, app, `pragma ignore_check_constraints = 1`)
			mustExec(t, app, `insert into penstock_outbox_orders (key, payload) values (`+key+`, '')`)
		}
	}
	b, err := src.Fetch(ctx, driver.Limit{Messages: len(odd), Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	hold := slices.Repeat([]driver.Verdict{{Outcome: driver.Dead, Hold: true}}, len(odd))
	if err := storetest.Settle(ctx, src, driver.Settled{Batch: b, Verdicts: hold}); err != nil {
		t.Fatal(err)
	}
	b, err = src.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	park := make([]driver.Verdict, len(b.Messages))
	for i, m := range b.Messages {
		want := driver.BehindParked
		if m.Key == "" {
			want = driver.InOrder
		}
		if b.KeyOrder[i] != want {
			t.Errorf("key %s is %v, want %v", odd[i], b.KeyOrder[i], want)
		}
		park[i].Outcome = driver.Parked
	}
	if err := storetest.Settle(ctx, src, driver.Settled{Batch: b, Verdicts: park}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{3, len(odd) - 3} { // without a key, then those that were held
		got, batches := fetchAll(t, src)
		if len(got) != want {
			t.Errorf("%d messages came back, want %d", len(got), want)
		}
		if err := storetest.Settle(ctx, src, batches...); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DiscardDeadLetters(ctx, admin.DeadLetterQuery{Outbox: "orders", Subscription: "billing"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := scan[int](t, app, `select count(*) from penstock_entries`); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// The reading of due keys continues where it stopped. It finds keys that become due without
// starting anew, and when it starts anew it leaves alone the messages in flight.
func TestDueLines(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	for _, key := range []string{"a", "b"} {
		if err := s.Publish(ctx, "orders", penstock.Message{Key: key, Payload: []byte("1")}, penstock.Message{Key: key, Payload: []byte("2")}); err != nil {
			t.Fatal(err)
		}
	}
	park := func(b driver.Batch, retry time.Duration) driver.Settled {
		refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
		st := driver.Settled{Batch: b, Verdicts: slices.Repeat([]driver.Verdict{{Outcome: driver.Parked, RetryIn: retry}}, len(b.Messages))}
		for i := range b.Messages {
			if string(b.Messages[i].Payload) == "1" {
				st.Verdicts[i].Failures = refused
			}
		}
		return st
	}
	fetch := func(want ...string) driver.Batch {
		t.Helper()
		b, err := src.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range b.Messages {
			got = append(got, m.Key+string(m.Payload))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		return b
	}
	settle := func(st driver.Settled) {
		t.Helper()
		if err := storetest.Settle(ctx, src, st); err != nil {
			t.Fatal(err)
		}
	}
	settle(park(fetch("a1", "a2", "b1", "b2"), 0))

	restore := sqlite.SweepEvery(time.Hour)
	defer func() { restore() }()
	heads := fetch("a1", "b1")
	fetch()
	settle(driver.Settled{Batch: heads, Verdicts: []driver.Verdict{{}, park(heads, time.Hour).Verdicts[1]}})
	fetch("a2") // due by the Settle, without starting anew
	fetch()

	restore()
	restore = sqlite.SweepEvery(0)
	src = subscribeAfter(t, s, src)
	fetch("a2")
	mustExec(t, app, `update penstock_entries set due = 1 where parked_key = 'b' and head`) // by someone whose clock is slow
	fetch("b1")
	fetch() // starts anew, and both are in flight
	src = subscribeAfter(t, s, src)
	b := fetch("b1", "a2")
	settle(driver.Settled{Batch: b})
	fetch("b2")
}

// A head that dies with nothing behind it holds its key all the same: the key
// stays for what comes next.
func TestHoldOfAnEmptiedLine(t *testing.T) {
	_, s, _ := newFile(t, sqlite.Options{})
	ctx := t.Context()
	src := subscribe(t, s, "billing")
	refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
	if err := s.Publish(ctx, "orders", numbered(1)...); err != nil {
		t.Fatal(err)
	}
	for _, v := range []driver.Verdict{{Outcome: driver.Parked, Failures: refused}, {Outcome: driver.Dead, Failures: refused, Hold: true}} {
		b, err := src.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		if err != nil || len(b.Messages) != 1 {
			t.Fatal(b, err)
		}
		if err := storetest.Settle(ctx, src, driver.Settled{Batch: b, Verdicts: []driver.Verdict{v}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Publish(ctx, "orders", numbered(1)...); err != nil {
		t.Fatal(err)
	}
	_, batches := fetchAll(t, src)
	if b := batches[0].Batch; len(b.KeyOrder) != 1 || b.KeyOrder[0] != driver.BehindParked {
		t.Errorf("the next message of a held key came with %v, want BehindParked", b.KeyOrder)
	}
}

// subscribeAfter takes over from a reader.
func subscribeAfter(t *testing.T, s *sqlite.Store, before driver.Source) driver.Source {
	t.Helper()
	if err := before.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return subscribe(t, s, "billing")
}
