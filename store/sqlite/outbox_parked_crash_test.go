package sqlite_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/sqlite"
)

// relayStubborn carries messages to deliver, until there is nothing left and
// nothing parked, and refuses every seventh until its third attempt.
func relayStubborn(ctx context.Context, s *sqlite.Store, deliver func(penstock.Message) error) error {
	src, err := s.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "billing", Lease: 1})
	if err != nil {
		return err
	}
	for {
		b, err := src.Fetch(ctx, driver.Limit{Messages: 20, Bytes: 1 << 20})
		if err != nil {
			return err
		}
		verdicts := make([]driver.Verdict, len(b.Messages))
		stopped := map[string]bool{}
		for i, m := range b.Messages {
			switch {
			case stopped[m.Key] || b.KeyOrder != nil && b.KeyOrder[i] == driver.BehindParked:
				verdicts[i].Outcome = driver.Parked
			case m.Seq%7 == 0 && m.Attempt < 3:
				stopped[m.Key] = true
				verdicts[i] = driver.Verdict{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: m.Attempt, At: time.Now(), Err: "not yet"}}}
			default:
				if err := deliver(m); err != nil {
					return err
				}
			}
		}
		if err := storetest.Settle(ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}); err != nil {
			return err
		}
		if len(b.Messages) > 0 {
			continue
		}
		if all, err := s.Status(ctx); err != nil || all[0].Subscriptions[0].Backlog+all[0].Subscriptions[0].Parked == 0 {
			return err
		}
	}
}

// Relays are killed -9 while they park keys and drain them. The next relay finds each key as it was
// settled: nothing is lost, and the first deliveries of a key are in order.
func TestKilledWhileParking(t *testing.T) {
	testseed.Soak(t)
	_, s, app := newFile(t, sqlite.Options{})
	const keys, perKey = 8, 50
	var msgs []penstock.Message
	for i := range keys * perKey {
		msgs = append(msgs, penstock.Message{Key: fmt.Sprint("key", i%keys), Payload: fmt.Appendf(nil, "key%d %d", i%keys, i/keys)})
	}
	if err := s.Publish(t.Context(), "orders", msgs...); err != nil {
		t.Fatal(err)
	}
	var delivered []string
	path := scan[string](t, app, `select file from pragma_database_list where name = 'main'`)
	parked := int64(0)
	for round := range 4 {
		n := 25 + 13*round
		lines, err := start(t, childRelay, path, diesWith(n+10*round)).killAfter(n) // the first one while a batch is delivered
		if err != nil {
			t.Fatal(err)
		}
		delivered = append(delivered, lines...)
		parked = max(parked, scan[int64](t, app, `select count(*) from penstock_entries`))
	}
	if parked == 0 {
		t.Error("no relay was killed with parked messages: the test shows nothing")
	}
	if err := relayStubborn(t.Context(), s, func(m penstock.Message) error {
		delivered = append(delivered, string(m.Payload))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	seen := map[string]bool{}
	for _, d := range delivered {
		if seen[d] {
			continue // the relay that delivered it was killed before it was settled
		}
		seen[d] = true
		key, _, _ := strings.Cut(d, " ")
		if want := fmt.Sprint(key, " ", next[key]); d != want {
			t.Fatalf("%q came first when %q was the next of its key", d, want)
		}
		next[key]++
	}
	if len(next) != keys {
		t.Errorf("messages of %d keys were delivered, want %d", len(next), keys)
	}
	for key, n := range next {
		if n != perKey {
			t.Errorf("of %s %d were delivered, want %d", key, n, perKey)
		}
	}
	if n := scan[int](t, app, `select count(*) from penstock_entries`); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	if check := scan[string](t, app, `pragma integrity_check`); check != "ok" {
		t.Errorf("integrity_check: %s", check)
	}
}
