package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
)

func TestStatusTable(t *testing.T) {
	now := time.Now()
	ring := []penstock.SegmentStatus{{Slot: 0}, {Slot: 1, Current: true}, {Slot: 2}}
	busy := penstock.SubscriptionStatus{
		Subscription: "billing", Backlog: 1204331, OldestAge: 75 * time.Second, Settled: 99, Rate: 31872, DeadLetters: 312, Parked: 10450, ParkedKeys: 120,
		HeldKeys: 2, Replaying: true, Holder: "relay-7c9d8b/4121", HolderSince: now.Add(-50 * time.Hour), Epoch: 17, LeaseUntil: now.Add(9 * time.Second),
	}
	outboxes := []penstock.OutboxStatus{
		{Outbox: "orders", Bytes: 3 << 30, Segments: ring, Retention: penstock.Retention{Age: 24 * time.Hour, Bytes: 1 << 30}, Subscriptions: []penstock.SubscriptionStatus{
			busy, {Subscription: "audit", Backlog: 1, Holder: "relay-7c9d8b/4122", HolderSince: now.Add(-time.Hour), LeaseUntil: now.Add(-time.Minute)}, {Subscription: "idle"},
		}},
		{Outbox: "we\nird \x1b[2J; 'x", Subscriptions: []penstock.SubscriptionStatus{{Subscription: "a b", DeadLetters: 1, Holder: "\x1b[31mred", LeaseUntil: now.Add(time.Hour)}}},
		{Outbox: "empty"},
	}
	var out strings.Builder
	if err := writeStatus(&out, outboxes, now); err != nil {
		t.Fatal(err)
	}
	table, notes, _ := strings.Cut(out.String(), "\n\norders/")
	for line := range strings.Lines(table) {
		if utf8.RuneCountInString(line) > 121 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	for i, r := range out.String() {
		if r != '\n' && hidden(r) {
			t.Errorf("%q at byte %d", r, i)
		}
	}
	contains(t, table, "1d or 1.0 GiB", "3 (in 1)", "1,204,331", "1m15s", "31,872/s", "10,450", "relay-7c9d8b/4121", "  17  ", "2d2h\n",
		`we\nird \x1b[2J; …`, `\x1b[31mred`, "(none)")
	for _, want := range []string{
		"billing: 312 dead letters to retry or to discard: penstock dead list orders --subscription billing\n",
		"orders/billing: 2 keys are held until a dead letter is decided about: penstock parked orders --subscription billing\n",
		"orders/billing: a replay is under way\n",
		"orders/audit: no relay runs it, and 1 message waits",
		"orders/audit: the lease of relay-7c9d8b/4122 ended 1m ago, and nobody has taken over\n",
		`1 dead letter to retry or to discard: penstock dead list $'we\nird \x1b[2J; \'x' --subscription 'a b'` + "\n",
	} {
		contains(t, notes, want)
	}
	if strings.Contains(notes, "orders/idle") || strings.Contains(notes, "billing: no relay") {
		t.Errorf("it says what nobody needs: %s", notes)
	}
}

func TestStatusJSONHasEveryField(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", numbered(2)...)
		d.must("outbox", "set", "orders", "--retain-age", "1h")
		source, err := d.store.Subscribe(t.Context(), penstock.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "web-1/42"})
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close(t.Context())
		var status struct {
			Outboxes []struct {
				Retention     map[string]any
				Subscriptions []map[string]any
			}
		}
		if err := json.Unmarshal([]byte(d.must("status", "--json")), &status); err != nil {
			t.Fatal(err)
		}
		if status.Outboxes[0].Retention["age_ns"] != float64(time.Hour) {
			t.Errorf("retention is %v", status.Outboxes[0].Retention)
		}
		s := status.Outboxes[0].Subscriptions[0]
		for _, field := range []string{"subscription", "backlog", "oldest_age_ns", "settled", "rate_per_second", "dead_letters", "parked", "parked_keys", "held_keys", "holder", "holder_since", "epoch", "lease_until"} {
			if s[field] == nil {
				t.Errorf("%s is missing in %v", field, s)
			}
		}
		if s["holder"] != "web-1/42" || s["backlog"] != float64(2) {
			t.Errorf("got %v", s)
		}
		if text := d.must("status"); !regexp.MustCompile(`web-1/42 +\d+ +\d+s\n`).MatchString(text) {
			t.Errorf("holder, epoch and since are not at the end of %q", text)
		}
	})
}
