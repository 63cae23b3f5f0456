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
		SinkDown: now.Add(-3 * time.Minute), SinkError: "dial tcp 127.0.0.1:5672: \x1b[31mconnection refused",
	}
	outboxes := []penstock.OutboxStatus{
		{Outbox: "orders", Bytes: 3 << 30, Segments: ring, Retention: penstock.Retention{Age: 24 * time.Hour, Bytes: 1 << 30}, Subscriptions: []penstock.SubscriptionStatus{
			busy, {Subscription: "audit", Backlog: 1, Holder: "relay-7c9d8b/4122", HolderSince: now.Add(-time.Hour), LeaseUntil: now.Add(-time.Minute)}, {Subscription: "idle"},
		}},
		{Outbox: "we\nird \x1b[2J; 'x", Subscriptions: []penstock.SubscriptionStatus{{Subscription: "a b", DeadLetters: 1, Holder: "\x1b[31mred", LeaseUntil: now.Add(time.Hour)}}},
		{Outbox: "empty"},
	}
	var out strings.Builder
	w := &statusWriter{Writer: &out, suggest: (&app{}).suggest, now: now}
	if err := w.outboxes(outboxes); err != nil {
		t.Fatal(err)
	}
	fits(t, out.String())
	table, notes, _ := strings.Cut(out.String(), "\n\norders/")
	if command := "\n  penstock dead list orders --subscription billing\n"; !strings.Contains(notes, command) {
		t.Errorf("a command is not on a line of its own: %s", notes)
	}
	notes = unwrapped(notes)
	for i, r := range out.String() {
		if r != '\n' && hidden(r) {
			t.Errorf("%q at byte %d", r, i)
		}
	}
	contains(t, table, "1d or 1.0 GiB", "3 (in 1)", "1,204,331", "1m15s", "31,872/s", "10,450", "relay-7c9d8b/4121", "  17  ", "2d2h\n",
		`we\nird \x1b[2J; 'x`, `\x1b[31mred`, "(none)")
	for _, want := range []string{
		"billing: 312 dead letters to retry or to discard: penstock dead list orders --subscription billing\n",
		"orders/billing: 2 keys are held until a dead letter is decided about: penstock parked orders --subscription billing\n",
		"orders/billing: a replay is under way\n",
		`orders/billing: the sink has taken nothing for 3m: dial tcp 127.0.0.1:5672: \x1b[31mconnection refused` + "\n",
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

// fits fails the test if a line has more than 80 columns, unless it is a command.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 && strings.Contains(line, " ") && !strings.HasPrefix(line, "  penstock ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// unwrapped has each note on one line.
func unwrapped(notes string) string { return strings.ReplaceAll(notes, "\n  ", " ") }

// Names, figures and holders of every length, and a longer command than line.
func TestStatusFitsATerminal(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("n", 48)
	huge := penstock.SubscriptionStatus{
		Subscription: long, Backlog: 12345678, OldestAge: 1000 * time.Hour, Rate: 123456, DeadLetters: 12345, Parked: 123456, ParkedKeys: 12345, HeldKeys: 1234,
		Holder: long, HolderSince: now.Add(-1000 * time.Hour), Epoch: 1234567, LeaseUntil: now.Add(time.Second),
	}
	var out strings.Builder
	w := &statusWriter{Writer: &out, suggest: (&app{schema: "s"}).suggest, now: now}
	for _, err := range []error{
		w.outboxes([]penstock.OutboxStatus{{Outbox: long, Bytes: 1 << 40, Segments: make([]penstock.SegmentStatus, 1000), Subscriptions: []penstock.SubscriptionStatus{huge}}}),
		w.adopted([]adoptedStatus{{Table: long, SubscriptionStatus: huge, argument: long}, {Table: long, SubscriptionStatus: penstock.SubscriptionStatus{Subscription: long}, Error: strings.Repeat("it is not there ", 20)}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fits(t, out.String())
	contains(t, out.String(), "12,345,678", "41d16h", "\n  penstock dead list --schema s "+long+" --subscription "+long+"\n")
	out.Reset()
	w.wide = true
	if err := w.outboxes([]penstock.OutboxStatus{{Outbox: long, Subscriptions: []penstock.SubscriptionStatus{huge}}}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(out.String(), "\n"); !strings.HasPrefix(lines[4], long+"  "+long) || !strings.Contains(lines[4], long+"  1234567") {
		t.Errorf("it is not on one line, in full: %s", out.String())
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
		if err := source.(penstock.SinkReporter).ReportSink(t.Context(), time.Now().Add(-time.Hour), "no route to host"); err != nil {
			t.Fatal(err)
		}
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
		for _, field := range []string{"subscription", "backlog", "oldest_age_ns", "settled", "rate_per_second", "dead_letters", "parked", "parked_keys", "held_keys", "holder", "holder_since", "epoch", "lease_until", "sink_down_since", "sink_error"} {
			if s[field] == nil {
				t.Errorf("%s is missing in %v", field, s)
			}
		}
		if s["holder"] != "web-1/42" || s["backlog"] != float64(2) {
			t.Errorf("got %v", s)
		}
		contains(t, d.must("status"), "the sink has taken nothing for 1h", "no route to host")
		if text := d.must("status"); !regexp.MustCompile(`web-1/42 +\d+ +\d+s\n`).MatchString(text) {
			t.Errorf("holder, epoch and since are not at the end of %q", text)
		}
	})
}
