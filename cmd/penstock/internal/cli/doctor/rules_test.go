package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
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
		now := look{at, []admin.OutboxStatus{{Outbox: "orders", Bytes: 2 << 20, Subscriptions: []admin.SubscriptionStatus{s}}}, []admin.QueueStatus{q}, jobs, false, nil}
		if check == doctor.CheckBacklog {
			s.Backlog = 50
		}
		before := look{at.Add(-over), []admin.OutboxStatus{{Outbox: "orders", Bytes: 1 << 20, Subscriptions: []admin.SubscriptionStatus{s}}}, []admin.QueueStatus{q}, jobs, false, nil}
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

// Jobs that stand at the limit of their queue may take long.
func TestTheLimitOfAQueueIsNamed(t *testing.T) {
	at, one, two := time.Now(), 1, 2
	for _, c := range []struct {
		limit *int
		want  bool
	}{{nil, false}, {&two, false}, {&one, true}} {
		q := admin.QueueStatus{Queue: "emails", Ready: 10, Running: 1, OldestAge: time.Hour, QueueSettings: penstock.QueueSettings{MaxRunning: c.limit}}
		l := look{at: at, queues: []admin.QueueStatus{q}, running: []doctor.Running{{Queue: "emails", ID: 1, Lease: 1, Worker: "w", Expired: -time.Minute}}}
		f := found(t, doctor.CheckWorkers, l)
		if named := strings.HasSuffix(f.Found, "; the limit of 1 running job (max_running) is reached, which is expected if jobs take long"); named != c.want || f.Severity == doctor.OK {
			t.Errorf("the limit is named: %t, want %t: %+v", named, c.want, f)
		}
	}
}

// A worker that lives is not said to be missing.
func TestAWorkerThatGetsNothing(t *testing.T) {
	at := time.Now()
	l := look{at: at, queues: []admin.QueueStatus{{Queue: "emails", Ready: 1, OldestAge: time.Hour}}, alive: []admin.Worker{{Queue: "emails", Name: "w1"}}}
	f := found(t, doctor.CheckQueue, l)
	if f.Severity != doctor.Critical || f.Found != "worker w1 runs but gets none of its jobs: 1 job is ready, the oldest for 1h0m0s" || !strings.Contains(f.Next, "vacuum-horizon") {
		t.Errorf("%+v", f)
	}
}

// found is the first finding of a check, if nothing changes between two looks.
func found(t *testing.T, check string, l look) doctor.Finding {
	t.Helper()
	for _, f := range compare(l, l, -1, doctor.Options{Old: 5 * time.Minute}) {
		if f.Check == check {
			return f
		}
	}
	t.Fatal("nothing is found for", check)
	return doctor.Finding{}
}
