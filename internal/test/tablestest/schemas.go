package tablestest

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// schemas are names that look like a part of a statement: its words stand in braces.
var schemas = []string{"{queue}", "{jobs}", "{table}", "{schema}", "{group} {clock}", "{id in leases}", "a\"b`c'd\\?", strings.Repeat("ü", 20)}

// inSchema uses a queue and an outbox in a schema of this name.
func (h Harness) inSchema(t *testing.T, name string) {
	s, ctx := h.Named(t, name), t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("Migrate", s.Migrate(ctx))
	must("CreateQueue", s.CreateQueue(ctx, "jobs", penstock.LIFO))
	must("SetGroup", s.SetGroup(ctx, "jobs", penstock.GroupPolicy{Group: penstock.DefaultGroup, MaxRunning: 10, Rate: penstock.Rate{Jobs: 100, Per: time.Second, Burst: 100}}))
	q := s.DriverQueue("jobs")
	_, err := q.Enqueue(ctx, penstock.NewJob{Key: "k"}, penstock.NewJob{UniqueKey: "u"}, penstock.NewJob{Deadline: time.Now().Add(time.Hour)})
	must("Enqueue", err)
	groups, err := q.(driver.GroupFinder).ReadyGroups(ctx, nil, "", 10)
	if err != nil || len(groups) != 1 {
		t.Errorf("ready groups: %q, %v", groups, err)
	}
	jobs, err := q.Claim(ctx, driver.Claim{Jobs: 10, Lease: time.Hour})
	if err != nil || len(jobs) != 3 {
		t.Fatalf("claimed %d jobs, %v", len(jobs), err)
	}
	_, err = q.Ack(ctx, jobs[0].Lease)
	must("Ack", err)
	_, err = q.Retry(ctx, jobs[1].Lease, 0, "no")
	must("Retry", err)
	must("DeadLetter", q.DeadLetter(ctx, jobs[2].Lease, "no"))
	must("Maintain", q.Maintain(ctx))
	if st, err := s.QueueStatus(ctx); err != nil || len(st) != 1 || st[0].Bytes == 0 || st[0].DeadLetters != 1 || st[0].Ready+st[0].Delayed != 1 {
		t.Errorf("status: %+v, %v", st, err)
	}
	must("CreateOutbox", s.CreateOutbox(ctx, "orders"))
	must("Publish", s.Publish(ctx, "orders", penstock.Message{Key: "k"}, penstock.Message{Key: "l"}))
	src, err := s.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "s"})
	must("Subscribe", err)
	b, err := src.Fetch(ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
	if err != nil || len(b.Messages) != 2 {
		t.Fatalf("fetched %d messages, %v", len(b.Messages), err)
	}
	parked := []driver.Verdict{{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}}, {}}
	must("Settle", src.Settle(ctx, b.Number, driver.Settled{Batch: b, Verdicts: parked}))
	must("DropQueue", s.DropQueue(ctx, "jobs"))
	must("DropOutbox", s.DropOutbox(ctx, "orders"))
}
