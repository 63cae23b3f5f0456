package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	findings "github.com/penstock/penstock/cmd/penstock/internal/cli/doctor"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
)

// shown is a store with a status, and nothing else.
type shown struct {
	driver.Database
	outboxes     []admin.OutboxStatus
	queues       []admin.QueueStatus
	inboxes      []admin.InboxStatus
	groups       map[string][]admin.GroupStatus
	alive        []admin.Worker
	before       []admin.OutboxStatus // at the first look, unless nil
	looked       *int
	reading      func() // is called when the status is read
	noOutboxes   bool   // the role may not see them
	hiddenQueues bool
	noWorkers    bool
}

var errForbidden = &pgconn.PgError{Code: "42501", Message: "permission denied"}

func (shown) Close() error { return nil }

func (s shown) Status(context.Context) ([]admin.OutboxStatus, error) {
	if s.reading != nil {
		s.reading()
	}
	if s.looked != nil {
		if *s.looked++; *s.looked == 1 && s.before != nil {
			return s.before, nil
		}
	}
	if s.noOutboxes {
		return nil, errForbidden
	}
	return s.outboxes, nil
}

func (s shown) QueueStatus(context.Context, ...string) ([]admin.QueueStatus, error) {
	if s.hiddenQueues {
		return nil, errForbidden
	}
	return slices.Clone(s.queues), nil
}

func (s shown) QueueStatusUpTo(ctx context.Context, _ int, names ...string) ([]admin.QueueStatus, error) {
	return s.QueueStatus(ctx, names...)
}

func (shown) Schedules(context.Context, string) ([]penstock.Schedule, error) { return nil, nil }

func (shown) ListJobs(context.Context, admin.JobQuery) (admin.JobPage, error) {
	return admin.JobPage{}, nil
}

func (s shown) QueueGroups(_ context.Context, queue, _ string, _ int) ([]admin.GroupStatus, error) {
	return s.groups[queue], nil
}

func (s shown) Workers(context.Context, string, int) ([]admin.Worker, error) {
	if s.noWorkers {
		return nil, errForbidden
	}
	return s.alive, nil
}

func (s shown) Inboxes(context.Context) ([]admin.InboxStatus, error) { return s.inboxes, nil }

func (shown) ParkedKeys(context.Context, string, string, int) ([]admin.ParkedKey, error) {
	return nil, nil
}

// looked is a store that was examined, and lists jobs that run.
type looked struct {
	shown
	doctor.Examined
	running []doctor.Running
	failed  error
}

func (l looked) Examine(context.Context, doctor.Options) (doctor.Examined, error) {
	return l.Examined, l.failed
}

func (l looked) Running(context.Context, string, int) ([]doctor.Running, error) {
	return l.running, nil
}

var errTooSlow = errors.New("canceling statement due to statement timeout")

// Findings from before a failed statement are shown, with a warning that the rest was not looked at. Without anything it is an error.
func TestFindingsSurviveAFailure(t *testing.T) {
	late := doctor.Finding{Check: doctor.CheckClock, Severity: doctor.Critical, Found: "the clocks differ"}
	found, err := findings.Findings(&cli.App{}, looked{Examined: doctor.Examined{Findings: []doctor.Finding{late}}, failed: errTooSlow})(t.Context())
	if err != nil || len(found) != 2 || found[0].Check != doctor.CheckClock || found[1].Severity != doctor.Warning || found[1].Found != errTooSlow.Error() {
		t.Errorf("found %+v, %v", found, err)
	}
	if found, err = findings.Findings(&cli.App{}, looked{failed: errTooSlow})(t.Context()); err != errTooSlow {
		t.Errorf("without anything: %+v, %v", found, err)
	}
}

// foundIn are the findings about a store between two looks, a second and what a look takes apart.
func foundIn(t *testing.T, store driver.Database) []doctor.Finding {
	t.Helper()
	found, err := findings.Findings(&cli.App{DatabaseURL: "sqlite:none.db"}, store)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// firstIn is the first finding of a check.
func firstIn(t *testing.T, store driver.Database, check string) doctor.Finding {
	t.Helper()
	for _, f := range foundIn(t, store) {
		if f.Check == check {
			return f
		}
	}
	t.Fatal("nothing is found for", check)
	return doctor.Finding{}
}

// Observations of two seconds are critical only if something else confirms them: a sink may be slow, jobs may take long, and a burst
// ends.
func TestTwoSecondsAreNotEnough(t *testing.T) { synctest.Test(t, twoSecondsAreNotEnough) }

func twoSecondsAreNotEnough(t *testing.T) {
	compared := func(check string, s admin.SubscriptionStatus, held time.Duration, over time.Duration) doctor.Finding {
		t.Helper()
		s.Subscription, s.Backlog, s.OldestAge, s.Holder, s.LeaseUntil = "billing", 100, time.Hour, "r1", time.Now().Add(time.Hour)
		q := admin.QueueStatus{Queue: "emails", Ready: 10, Running: 1, OldestAge: time.Hour}
		jobs := []doctor.Running{{Queue: "emails", ID: 1, Lease: 1, Worker: "w", Attempt: 1, Age: time.Hour, Expired: -time.Minute, Held: held}}
		orders := func(bytes int64) []admin.OutboxStatus {
			return []admin.OutboxStatus{{Outbox: "orders", Bytes: bytes, Subscriptions: []admin.SubscriptionStatus{s}}}
		}
		now := orders(2 << 20)
		if check == doctor.CheckBacklog {
			s.Backlog = 50
		}
		return firstIn(t, looked{shown{outboxes: now, before: orders(1 << 20), looked: new(int), reading: func() { time.Sleep(over - time.Second) }, queues: []admin.QueueStatus{q}},
			doctor.Examined{Free: 10 << 20}, jobs, nil}, check)
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
	for of, now := range map[string]shown{
		"outboxes": {hiddenQueues: true},
		"queues":   {noOutboxes: true, queues: []admin.QueueStatus{{Queue: "emails"}}},
		"nothing":  {noOutboxes: true, hiddenQueues: true},
	} {
		for _, f := range foundIn(t, now) {
			if f.Check == doctor.CheckNotLookedAt {
				continue
			}
			if f.Severity != doctor.OK || f.Check == doctor.CheckWorkers || !strings.Contains(f.Found, of[:5]) && (f.Check == doctor.CheckDead || f.Check == doctor.CheckBacklog) {
				t.Errorf("a role that sees %s is told %s %s: %s", of, f.Severity, f.Check, f.Found)
			}
		}
	}
	parked := compared(doctor.CheckParked, admin.SubscriptionStatus{ParkedKeys: 2, Parked: 3}, 0, short)
	if strings.Contains(parked.Found, "0 of them") || parked.Found != "2 keys are parked with 3 messages" {
		t.Errorf("of parked keys that none holds is said: %s", parked.Found)
	}
	if !strings.Contains(parked.Next, "--give-up SEQ") {
		t.Errorf("what to do about a message that the sink never takes is not said: %s", parked.Next)
	}
	held := compared(doctor.CheckParked, admin.SubscriptionStatus{ParkedKeys: 2, HeldKeys: 2, Parked: 3}, 0, short)
	if strings.Contains(held.Why, "refuses") || held.Next != "retry or discard the dead letter of each (dead retry, dead discard): penstock dead list orders --subscription billing, or see which keys: penstock parked orders --subscription billing" {
		t.Errorf("of keys on hold is said: %+v", held)
	}
}

// Jobs that stand at the limit of their queue may take long.
func TestTheLimitOfAQueueIsNamed(t *testing.T) { synctest.Test(t, theLimitOfAQueueIsNamed) }

func theLimitOfAQueueIsNamed(t *testing.T) {
	one, two := 1, 2
	for _, c := range []struct {
		limit *int
		want  bool
	}{{nil, false}, {&two, false}, {&one, true}} {
		q := admin.QueueStatus{Queue: "emails", Ready: 10, Running: 1, OldestAge: time.Hour, QueueSettings: penstock.QueueSettings{MaxRunning: c.limit}}
		jobs := []doctor.Running{{Queue: "emails", ID: 1, Lease: 1, Worker: "w", Expired: -time.Minute}}
		store := looked{shown: shown{queues: []admin.QueueStatus{q}}, running: jobs}
		f := firstIn(t, store, doctor.CheckQueue)
		if (f.Found == "the queue is at its limit of 1 running job: 10 jobs wait" && f.Next == "penstock queue set emails --max-running N") != c.want {
			t.Errorf("with that limit: %+v", f)
		}
		f = firstIn(t, store, doctor.CheckWorkers)
		if named := strings.HasSuffix(f.Found, "; the limit of 1 running job (max_running) is reached, which is expected if jobs take long"); named != c.want || f.Severity == doctor.OK {
			t.Errorf("the limit is named: %t, want %t: %+v", named, c.want, f)
		}
	}
	queues := []admin.QueueStatus{{Queue: "emails", Running: 1, OldestAge: time.Minute, QueueSettings: penstock.QueueSettings{MaxRunning: &one}}}
	f := firstIn(t, shown{queues: queues, reading: func() { queues[0].Ready += 5 }}, doctor.CheckBacklog)
	if f.Next != "1 of 1 jobs run, which is the limit; to raise it: penstock queue set emails --max-running N" {
		t.Errorf("a backlog that grows at the limit: %+v", f)
	}
}

// Where dequeue takes the jobs, no worker is missing.
func TestJobsThatAreDequeued(t *testing.T) { synctest.Test(t, jobsThatAreDequeued) }

func jobsThatAreDequeued(t *testing.T) {
	for _, c := range []struct {
		oldest time.Duration
		grows  time.Duration // of its age from one look to the next
		taken  int64
		want   string
	}{
		{time.Hour, time.Second, 0, "no worker seems to run: 10 jobs are ready, the oldest for 1h0m2s, and none runs"},
		{time.Hour, time.Second, 1, "jobs are taken, as by dequeue or by short jobs, but 8 jobs are ready, the oldest for 1h0m2s"},
		{time.Hour, 0, 0, "jobs are taken, as by dequeue or by short jobs, but 10 jobs are ready, the oldest for 1h0m0s"},
		{time.Minute, 0, 1, "of 1 queue none is left alone or in trouble"},
	} {
		queues := []admin.QueueStatus{{Queue: "emails", Ready: 10, OldestAge: c.oldest}}
		f := firstIn(t, shown{queues: queues, reading: func() { queues[0].Ready -= c.taken; queues[0].OldestAge += c.grows }}, doctor.CheckQueue)
		if f.Found != c.want {
			t.Errorf("%+v: %+v", c, f)
		}
		if strings.HasPrefix(c.want, "jobs are taken") && f.Next != "see its workers, and how many jobs each has ended: penstock queue workers emails" {
			t.Errorf("%+v", f)
		}
	}
}

// A worker that lives is not said to be missing.
func TestAWorkerThatGetsNothing(t *testing.T) { synctest.Test(t, aWorkerThatGetsNothing) }

func aWorkerThatGetsNothing(t *testing.T) {
	f := firstIn(t, shown{queues: []admin.QueueStatus{{Queue: "emails", Ready: 1, OldestAge: time.Hour}},
		alive: []admin.Worker{{Queue: "emails", Name: "w1", AliveUntil: time.Now().Add(time.Hour)}}}, doctor.CheckQueue)
	if f.Severity != doctor.Critical || f.Found != "worker w1 runs but gets none of its jobs: 1 job is ready, the oldest for 1h0m0s" || f.Why != "" || f.Next != "read the worker's log" {
		t.Errorf("%+v", f)
	}
}

// A worker whose heartbeat is late is not said to run, and no transaction is blamed.
func TestAWorkerThatIsStopped(t *testing.T) {
	synctest.Test(t, aWorkerThatIsStopped)
	contains(t, unwrapped(statusOf(t, lastHeard(50*time.Second))), "worker w1 has sent no heartbeat for 5", "s, and 1 job is ready; its process is stopped or hangs: penstock queue workers emails")
}

// lastHeard is a queue with a job, and a worker whose last heartbeat is that old.
func lastHeard(silent time.Duration) shown {
	return shown{queues: []admin.QueueStatus{{Queue: "emails", Ready: 1, OldestAge: time.Hour}},
		alive: []admin.Worker{{Queue: "emails", Name: "w1", SeenAt: time.Now().Add(-silent), AliveUntil: time.Now().Add(90*time.Second - silent)}}}
}

func aWorkerThatIsStopped(t *testing.T) {
	for _, c := range []struct {
		silent time.Duration
		want   string
	}{
		{30 * time.Second, "worker w1 runs but gets none of its jobs: 1 job is ready, the oldest for 1h0m0s"},
		{50 * time.Second, "worker w1 has sent no heartbeat for 51s, and 1 job is ready, the oldest for 1h0m0s"},
	} {
		f := firstIn(t, lastHeard(c.silent), doctor.CheckQueue)
		if f.Severity != doctor.Critical || f.Found != c.want || strings.Contains(f.Why+f.Next, "transaction") {
			t.Errorf("%+v", f)
		}
	}
}
