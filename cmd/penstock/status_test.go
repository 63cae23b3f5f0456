package main

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

func TestStatusJSONHasEveryField(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", numbered(2)...)
		d.must("outbox", "set", "orders", "--retain-age", "1h")
		source, err := d.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "web-1/42"})
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close(t.Context())
		if err := source.(driver.SinkReporter).ReportSink(t.Context(), time.Now().Add(-time.Hour), "no route to host"); err != nil {
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
		for _, field := range []string{"subscription", "backlog", "oldest_age_ns", "settled", "rate_per_second", "dead_letters", "parked", "parked_keys", "held_keys", "parked_age_ns", "holder", "holder_since", "epoch", "lease_until", "sink_down_since", "sink_error"} {
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

// statusJSON is the output of status --json.
type statusJSON struct {
	Outboxes []admin.OutboxStatus
	Queues   []admin.QueueStatus
	Adopted  []struct {
		Table string
		admin.SubscriptionStatus
		Error string
	}
}
