package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
)

// statusOf is what penstock status shows of a store.
func statusOf(t *testing.T, store driver.Database, args ...string) string {
	t.Helper()
	d := &desk{t: t, open: func() driver.Database { return store }}
	return d.must(append([]string{"status"}, args...)...)
}

func TestInboxNotes(t *testing.T) {
	now := time.Now()
	out := statusOf(t, shown{inboxes: []admin.InboxStatus{
		{Consumer: strings.Repeat("c", 40), Keep: 7 * 24 * time.Hour, Bytes: 3 << 30, Segments: make([]admin.SegmentStatus, 4), Held: 1234567, HeldBytes: 1 << 30, Gaps: 1234567, NextGap: now.Add(90*time.Minute + 20*time.Second)},
		{Consumer: "young", Keep: time.Hour, Held: 1, NextGap: now.Add(-time.Second)},
		{Consumer: "off\n", Keep: time.Hour, Held: 1, NextGap: now.Add(-time.Hour - 20*time.Second)},
	}})
	table, notes, _ := strings.Cut(out, "\n\n")
	fits(t, table)
	notes = unwrapped(notes)
	contains(t, table, "1,234,567", "3.0 GiB", "in 1h30m", `off\n`)
	contains(t, notes, `off\n: messages have been due for 1h, and no consumer takes them`, `penstock inbox held $'off\n'`)
	same(t, "notes", fmt.Sprint(strings.Count(notes, "\n")), "1")
}

func TestQueueTable(t *testing.T) {
	yes, ten := true, 10
	queues := []admin.QueueStatus{
		{Queue: strings.Repeat("q", 40), Order: penstock.FIFO, Bytes: 3 << 30, Segments: make([]admin.SegmentStatus, 8), Ready: 12345678, Running: 10, OldestAge: 90 * time.Hour,
			Delayed: 1234567, Waiting: 1234567, QueueSettings: penstock.QueueSettings{MaxRunning: &ten}},
		{Queue: "idle", Ready: 3, OldestAge: time.Minute},
		{Queue: "young", Ready: 3, OldestAge: time.Second},
		{Queue: "full", Groups: []admin.GroupStatus{{Group: strings.Repeat("g", 200), Ready: 1000, More: true, OldestAge: 90 * time.Hour, Running: 1234567, Delayed: 1234567, Waiting: 1234567}}},
		{Queue: "off\n", Ready: 3, OldestAge: time.Minute, QueueSettings: penstock.QueueSettings{Paused: &yes}},
	}
	queues = append(queues, admin.QueueStatus{Queue: "group", Ready: 2, OldestAge: time.Minute}, admin.QueueStatus{Queue: "busy", Ready: 1, Running: 2, OldestAge: time.Hour},
		admin.QueueStatus{Queue: "gone", Running: 2})
	store := looked{shown: shown{queues: queues, groups: map[string][]admin.GroupStatus{
		"group": {{Group: "a b", Ready: 2, OldestAge: time.Minute}},
		"busy":  {{Ready: 1, OldestAge: time.Hour}, {Group: "g", Ready: 1, OldestAge: time.Hour}, {Group: "h", Ready: 1, Running: 1, OldestAge: time.Hour}},
	}}, running: []doctor.Running{{Queue: "gone", Expired: time.Minute}, {Queue: "gone", Expired: 2 * time.Minute}}}
	table, rest, _ := strings.Cut(statusOf(t, store), "\n\n")
	groups, notes, _ := strings.Cut(rest, "\n\n")
	fits(t, table)
	fits(t, groups)
	contains(t, groups, "1,000+", "1,234,567")
	contains(t, table, "12,345,678", "10 of 10", "3.0 GiB", `off\n`)
	same(t, "notes", unwrapped(notes), queues[0].Queue+": the queue is at its limit of 10 running jobs: 12,345,678 jobs wait: penstock queue set "+queues[0].Queue+" --max-running N\n"+
		"idle: no worker seems to run, and 3 jobs are ready; a program that dequeues is not seen: start the worker of your application, or: penstock work idle --exec COMMAND\n"+
		`off\n: it is paused, no job begins: penstock queue resume $'off\n'`+"\n"+
		"group: no worker seems to run, and 2 jobs are ready; a program that dequeues is not seen: start the worker of your application, or: penstock work group --all-groups --exec COMMAND\n"+
		"busy: workers run, but none seems to take jobs of 2 groups, such as g: penstock work busy --all-groups --exec COMMAND\n"+
		"gone: no worker seems to run: 2 leases of running jobs ended, the first 2m0s ago: start the worker of your application, or: penstock work gone --exec COMMAND\n")
	held := statusOf(t, shown{queues: []admin.QueueStatus{{Queue: strings.Repeat("q", 40), Groups: []admin.GroupStatus{{Group: strings.Repeat("g", 40), Ready: 1, OldestAge: time.Minute,
		Limits: &admin.GroupLimits{Hold: admin.Hold{Until: time.Now().Add(90*time.Minute + 20*time.Second), Reason: "the API answered 429"}}}}}}})
	fits(t, held)
	contains(t, held, "HELD FOR", "  1h30m  ")
	contains(t, statusOf(t, store, "--wide"), queues[0].Queue, "SEGMENTS  ORDER\n", "8         fifo\n")
	kept := statusOf(t, shown{queues: []admin.QueueStatus{{Queue: "default", Order: penstock.FIFO, Bytes: 160 << 10, DoneBytes: 56 << 10}, {Queue: "mails", Bytes: 8 << 10}}})
	fits(t, kept)
	contains(t, kept, "      SIZE      DONE\n", "default  ", "  160.0 KiB  56.0 KiB\n", "  8.0 KiB       0 B\n")
}

// A group that is held lacks no worker, nor do jobs that a worker which lives cannot take.
func TestQueuesThatLackNoWorker(t *testing.T) {
	two := 2
	held := &admin.GroupLimits{Hold: admin.Hold{Until: time.Date(2030, 1, 1, 18, 4, 0, 0, time.UTC), Reason: "answered 429"}}
	out := statusOf(t, shown{alive: []admin.Worker{{Queue: "locked", Name: "w1", AliveUntil: time.Now().Add(time.Hour)}}, queues: []admin.QueueStatus{
		{Queue: "tenants", Ready: 1, OldestAge: time.Hour, Groups: []admin.GroupStatus{{Group: "acme", Ready: 1, OldestAge: time.Hour, Limits: held}}},
		{Queue: "young", Ready: 2, OldestAge: time.Hour, Groups: []admin.GroupStatus{{Group: "acme", Ready: 1, OldestAge: time.Hour, Limits: held}, {Group: "b", Ready: 1, OldestAge: time.Second}}},
		{Queue: "busy", Ready: 1, Running: 2, OldestAge: time.Hour, Groups: []admin.GroupStatus{{Group: "full", Ready: 1, Running: 2, OldestAge: time.Hour, Limits: &admin.GroupLimits{MaxRunning: 2}}}},
		{Queue: "locked", Ready: 3, OldestAge: time.Hour},
		{Queue: "low", Ready: 3, Running: 2, OldestAge: time.Hour, QueueSettings: penstock.QueueSettings{MaxRunning: &two}},
	}})
	_, notes, _ := strings.Cut(unwrapped(out), "\n\ntenants: ")
	same(t, "notes", notes, "group acme is held until 18:04:00 UTC (answered 429): 1 job waits: penstock queue group hold tenants acme 0\n"+
		"young: group acme is held until 18:04:00 UTC (answered 429): 1 job waits: penstock queue group hold young acme 0\n"+
		"busy: group full is at its limit of 2 running jobs: 1 job waits: penstock queue group list busy\n"+
		"locked: worker w1 runs but gets none of its jobs, and 3 jobs are ready; an open transaction may hold them: penstock doctor\n"+
		"low: the queue is at its limit of 2 running jobs: 3 jobs wait: penstock queue set low --max-running N\n")
}

// A role that may not see the workers does not read that there is none.
func TestWorkersThatARoleDoesNotSee(t *testing.T) {
	out := unwrapped(statusOf(t, shown{noWorkers: true, queues: []admin.QueueStatus{{Queue: "idle", Ready: 3, OldestAge: time.Minute}}}))
	contains(t, out, "idle: 3 jobs are ready, and none runs; this role may not see whether a worker lives: as the owner of the schema, penstock queue workers idle\n")
	if strings.Contains(out, "no worker seems") {
		t.Error(out)
	}
}

func TestStatusTable(t *testing.T) {
	now := time.Now()
	ring := []admin.SegmentStatus{{Slot: 0}, {Slot: 1, Current: true}, {Slot: 2}}
	busy := admin.SubscriptionStatus{
		Subscription: "billing", Backlog: 1204331, OldestAge: 75 * time.Second, Settled: 99, Rate: 31872, DeadLetters: 312, Parked: 10450, ParkedKeys: 120,
		HeldKeys: 2, Replaying: true, Holder: "relay-7c9d8b/4121", HolderSince: now.Add(-50*time.Hour - time.Minute), Epoch: 17, LeaseUntil: now.Add(time.Hour),
		SinkDown: now.Add(-3*time.Hour - 20*time.Second), SinkError: "dial tcp 127.0.0.1:5672: \x1b[31mconnection refused",
	}
	outboxes := []admin.OutboxStatus{
		{Outbox: "orders", Bytes: 3 << 30, Segments: ring, Retention: admin.Retention{Age: 24 * time.Hour, Bytes: 1 << 30}, Subscriptions: []admin.SubscriptionStatus{
			busy, {Subscription: "audit", Backlog: 1, Holder: "relay-7c9d8b/4122", HolderSince: now.Add(-time.Hour), LeaseUntil: now.Add(-time.Hour - 20*time.Second)}, {Subscription: "idle"},
		}},
		{Outbox: "we\nird \x1b[2J; 'x", Subscriptions: []admin.SubscriptionStatus{{Subscription: "a b", DeadLetters: 1, Holder: "\x1b[31mred", LeaseUntil: now.Add(time.Hour)}}},
		{Outbox: "empty"},
	}
	out := statusOf(t, shown{outboxes: outboxes})
	fits(t, out)
	table, notes, _ := strings.Cut(out, "\n\norders/")
	if command := "\n  penstock dead list orders --subscription billing\n"; !strings.Contains(notes, command) {
		t.Errorf("a command is not on a line of its own: %s", notes)
	}
	notes = unwrapped(notes)
	for i, r := range out {
		if r != '\n' && shell.Hidden(r) {
			t.Errorf("%q at byte %d", r, i)
		}
	}
	contains(t, table, "1d or 1.0 GiB", "3 (in 1)", "1,204,331", "1m15s", "31,872/s", "10,450", "relay-7c9d8b/4121", "  17  ", "2d2h\n",
		`we\nird \x1b[2J; 'x`, `\x1b[31mred`, "(none)")
	for _, want := range []string{
		"billing: 312 dead letters to retry or to discard: penstock dead list orders --subscription billing\n",
		"orders/billing: 2 keys are held until a dead letter is decided about: penstock parked orders --subscription billing\n",
		"orders/billing: a replay is under way\n",
		`orders/billing: the sink has taken nothing for 3h: dial tcp 127.0.0.1:5672: \x1b[31mconnection refused` + "\n",
		"orders/audit: no relay runs it, and 1 message waits: penstock relay --outbox orders --subscription audit --sink URL\n",
		"orders/audit: the lease of relay-7c9d8b/4122 ended 1h ago, and no relay has taken over\n",
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

// Names, figures and holders of every length, and a command that is longer than a line.
func TestStatusFitsATerminal(t *testing.T) {
	now := time.Now()
	long := strings.Repeat("n", 48)
	huge := admin.SubscriptionStatus{
		Subscription: long, Backlog: 12345678, OldestAge: 1000 * time.Hour, Rate: 123456, DeadLetters: 12345, Parked: 123456, ParkedKeys: 12345, HeldKeys: 1234,
		Holder: long, HolderSince: now.Add(-1000*time.Hour - time.Minute), Epoch: 1234567, LeaseUntil: now.Add(time.Hour),
	}
	out := statusOf(t, shown{outboxes: []admin.OutboxStatus{{Outbox: long, Bytes: 1 << 40, Segments: make([]admin.SegmentStatus, 1000), Subscriptions: []admin.SubscriptionStatus{huge}}}}, "--schema", "s")
	fits(t, out)
	contains(t, out, "12,345,678", "41d16h", "\n  penstock dead list --schema s "+long+" --subscription "+long+"\n")
	out = statusOf(t, shown{outboxes: []admin.OutboxStatus{{Outbox: long, Subscriptions: []admin.SubscriptionStatus{huge}}}}, "--schema", "s", "--wide")
	if lines := strings.Split(out, "\n"); !strings.HasPrefix(lines[4], long+"  "+long) || !strings.Contains(lines[4], long+"  1234567") {
		t.Errorf("it is not on one line, in full: %s", out)
	}
}
