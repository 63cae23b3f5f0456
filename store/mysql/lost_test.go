package mysql_test

import (
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
)

// A reader whose subscribing was lost, with a dump that was restored or a replica that was promoted, is fenced, though the epoch
// that it had is given to another.
func TestEpochThatComesAgain(t *testing.T) {
	t.Parallel()
	url := testserver.MariaDBDatabase(t)
	s, app := migrated(t, url), application(t, url)
	must(t, s.CreateOutbox(t.Context(), "orders"))
	subscribe := func(holder string) driver.Source {
		t.Helper()
		src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: holder, Lease: time.Hour})
		must(t, err)
		return src
	}
	must(t, s.Publish(t.Context(), "orders", penstock.Message{Payload: []byte("m")}))
	before := subscribe("before")
	b := fetch(t, before, 10)
	exec(t, app, "update subscriptions set epoch = epoch - 1, holder = '', lease_until = '1970-01-01'")
	after := subscribe("after")
	if again := fetch(t, after, 10); len(again.Messages) != 1 {
		t.Fatalf("got %v, want a message", again.Messages)
	}
	_, fetched := before.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
	for what, err := range map[string]error{"renewed": before.Renew(t.Context()), "settled": before.Settle(t.Context(), b.Number, driver.Settled{Batch: b}), "fetched": fetched} {
		if !errors.Is(err, penstock.ErrFenced) {
			t.Errorf("%s: %v, want ErrFenced", what, err)
		}
	}
	must(t, before.Close(t.Context()), after.Renew(t.Context()))
	all, err := s.Status(t.Context())
	must(t, err)
	if s := all[0].Subscriptions[0]; s.Settled != 0 || s.Holder != "after" {
		t.Errorf("%d settled, held by %q", s.Settled, s.Holder)
	}
	must(t, after.Close(t.Context()))
}
