package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/doctor"
)

// Observations of two seconds are critical only if something else confirms them: a sink may be slow, jobs may take long, and a burst
// ends.
func TestTwoSecondsAreNotEnough(t *testing.T) {
	o := doctor.Options{Old: 5 * time.Minute}
	at := time.Now()
	compared := func(check string, s admin.SubscriptionStatus, held time.Duration, over time.Duration) doctor.Finding {
		t.Helper()
		s.Subscription, s.Backlog, s.OldestAge, s.Holder, s.LeaseUntil = "billing", 100, time.Hour, "r1", at.Add(time.Hour)
		q := admin.QueueStatus{Queue: "emails", Ready: 10, Running: 1, OldestAge: time.Hour}
		jobs := []doctor.Running{{Queue: "emails", ID: 1, Lease: 1, Worker: "w", Attempt: 1, Age: time.Hour, Expired: -time.Minute, Held: held}}
		now := look{at, []admin.OutboxStatus{{Outbox: "orders", Bytes: 2 << 20, Subscriptions: []admin.SubscriptionStatus{s}}}, []admin.QueueStatus{q}, jobs, false}
		if check == doctor.CheckBacklog {
			s.Backlog = 50
		}
		before := look{at.Add(-over), []admin.OutboxStatus{{Outbox: "orders", Bytes: 1 << 20, Subscriptions: []admin.SubscriptionStatus{s}}}, []admin.QueueStatus{q}, jobs, false}
		for _, f := range compare(before, now, 10<<20, o) {
			if f.Check == check {
				return f
			}
		}
		t.Fatal("nothing is found for", check)
		return doctor.Finding{}
	}
	const short, long = 2 * time.Second, time.Minute
	for _, c := range []struct {
		check string
		rate  float64
		held  time.Duration
		over  time.Duration
		want  doctor.Severity
	}{
		{doctor.CheckRelay, 0, 0, short, doctor.Critical},
		{doctor.CheckRelay, 3, 0, short, doctor.Warning},
		{doctor.CheckWorkers, 0, time.Hour, short, doctor.Critical},
		{doctor.CheckWorkers, 0, time.Minute, short, doctor.Warning},
		{doctor.CheckBacklog, 0, 0, long, doctor.Critical},
		{doctor.CheckBacklog, 0, 0, short, doctor.Warning},
	} {
		if f := compared(c.check, admin.SubscriptionStatus{Rate: c.rate}, c.held, c.over); f.Severity != c.want {
			t.Errorf("%+v is %s: %s", c, f.Severity, f.Found)
		}
	}
	for of, now := range map[string]look{
		"outboxes": {at: at, outboxes: []admin.OutboxStatus{}},
		"queues":   {at: at, queues: []admin.QueueStatus{{Queue: "emails"}}},
		"nothing":  {at: at},
	} {
		for _, f := range compare(now, now, -1, o) {
			if f.Severity != doctor.OK || f.Check == doctor.CheckWorkers || !strings.Contains(f.Found, of[:5]) && (f.Check == doctor.CheckDead || f.Check == doctor.CheckBacklog) {
				t.Errorf("a role that sees %s is told %s %s: %s", of, f.Severity, f.Check, f.Found)
			}
		}
	}
	parked := compared(doctor.CheckParked, admin.SubscriptionStatus{ParkedKeys: 2, Parked: 3}, 0, short)
	if strings.Contains(parked.Found, "0 of them") || parked.Found != "2 keys are parked with 3 messages" {
		t.Errorf("of parked keys that none holds is said: %s", parked.Found)
	}
}
