package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/store/sqlite"
)

// queues is the desk's store for verbs about queues.
func (d *desk) queues() driver.QueueStore { return d.store.(driver.QueueStore) }

// jobs enqueues one job per payload and returns their ids.
func (d *desk) jobs(queue string, payloads ...string) []int64 {
	d.t.Helper()
	jobs := make([]penstock.NewJob, len(payloads))
	for i, p := range payloads {
		jobs[i].Payload = []byte(p)
	}
	made, err := d.queues().DriverQueue(queue).Enqueue(d.t.Context(), jobs...)
	if err != nil {
		d.t.Fatal(err)
	}
	ids := make([]int64, len(made))
	for i := range made {
		ids[i] = made[i].ID
	}
	return ids
}

// queue is the status of one queue.
func (d *desk) queue(name string) *admin.QueueStatus {
	d.t.Helper()
	q := d.find(d.t.Context(), name)
	if q == nil {
		d.t.Fatalf("there is no queue %q", name)
	}
	return q
}

// find returns nil if there is none.
func (d *desk) find(ctx context.Context, name string) *admin.QueueStatus {
	queues, _ := d.queues().QueueStatus(ctx)
	for i := range queues {
		if queues[i].Queue == name {
			return &queues[i]
		}
	}
	return nil
}

// jobsIn counts the jobs that are neither done nor dead.
func jobsIn(q *admin.QueueStatus) int64 { return q.Ready + q.Running + q.Delayed + q.Waiting }

func TestQueueLifecycle(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		for _, name := range []string{"mails", `we"ird; drop table x`, "größe"} {
			same(t, name, d.must("queue", "create", name), "Queue "+name+" is ready.\n")
		}
		d.must("queue", "create", "stack", "--order", "lifo", "--max-attempts", "3", "--max-running", "2", "--dedup-window", "10m")
		d.cli("queue", "create", "mails").wants(t, terminal.ExitFailure, `creating queue "mails": the queue exists already: use it, or choose another name`)
		d.must("queue", "create", "mails", "--if-missing")
		d.cli("queue", "create", "mails", "--if-missing", "--order", "lifo").wants(t, terminal.ExitUsage, "exists with the order fifo")
		d.must("outbox", "create", "orders")
		d.cli("queue", "create", "orders", "--if-missing").wants(t, terminal.ExitFailure, `creating queue "orders": an outbox has this name: outboxes and queues share their names: choose another`)
		for _, flag := range []string{"--json", "--if-missing"} {
			d.cli("outbox", "create", "mails", flag).wants(t, terminal.ExitFailure, `creating outbox "mails": a queue has this name: outboxes and queues share their names: choose another`)
		}
		d.cli("queue", "create", "").wants(t, terminal.ExitUsage, "queue has no name")

		var names []string
		if err := json.Unmarshal([]byte(d.must("queue", "list", "--json")), &names); err != nil {
			t.Fatal(err)
		}
		same(t, "list", strings.Join(names, ", "), `größe, mails, stack, we"ird; drop table x`)
		same(t, "list", d.must("queue", "list"), strings.Join(names, "\n")+"\n")
		stack := d.queue("stack")
		same(t, "created as", fmt.Sprint(stack.Order, *stack.MaxAttempts, *stack.MaxRunning, *stack.DedupWindow), "lifo3 2 10m0s")

		d.jobs("mails", "a", "b")
		d.cli("queue", "drop", "mails").wants(t, terminal.ExitUsage, "nothing was dropped: there is no terminal to ask on")
		d.asked("y\n", "queue", "drop", "mails").wants2(t, terminal.ExitFailure, "This deletes queue mails with everything in it: 2 jobs, 0 dead letters.", "the name does not match")
		same(t, "still there", fmt.Sprint(d.queue("mails").Ready), "2")
		if o := d.asked("mails\n", "queue", "drop", "mails"); o.code != terminal.ExitOK || o.stdout != "Queue mails is gone (counted before: 2 jobs, 0 dead letters).\n" {
			t.Errorf("%+v", o)
		}
		same(t, "json", d.must("queue", "create", "mails", "--json")+d.must("queue", "drop", "mails", "--yes", "--json"), `{"queue":"mails"}`+"\n"+`{"dead_letters":0,"jobs":0,"queue":"mails"}`+"\n")
		d.cli("queue", "drop", "mails", "--yes").wants(t, terminal.ExitFailure, `queue "mails": no such queue: penstock queue list`)
	})
}

// wants2 is like it for a verb that asks first and therefore prints more than a line.
func (o outcome) wants2(t *testing.T, code int, parts ...string) {
	t.Helper()
	if o.code != code {
		t.Errorf("exit code %d, want %d: %s", o.code, code, o.stderr)
	}
	contains(t, o.stderr, parts...)
}

func TestQueueSetAndPause(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		same(t, "attempts", d.must("queue", "set", "mails", "--max-attempts", "5"), "Queue mails: 5 attempts, any number at a time, deduplication for 1h.\n")
		same(t, "others stay", d.must("queue", "set", "mails", "--max-running", "3", "--dedup-window", "2d"), "Queue mails: 5 attempts, 3 at a time, deduplication for 2d.\n")
		same(t, "no limit", d.must("queue", "set", "mails", "--max-running", "unlimited", "--json"),
			`{"queue":"mails","paused":false,"max_attempts":5,"max_running":0,"dedup_window_ns":172800000000000}`+"\n")

		same(t, "pause", d.must("queue", "pause", "mails"), "Queue mails: paused, 5 attempts, any number at a time, deduplication for 2d.\n")
		d.jobs("mails", "a")
		contains(t, d.must("status", "mails"), "mails: it is paused, no job begins: penstock queue resume mails\n")
		claim := driver.Claim{Jobs: 1, Lease: time.Minute}
		if jobs, err := d.queues().DriverQueue("mails").Claim(t.Context(), claim); err != nil || len(jobs) > 0 {
			t.Errorf("%v, %v was claimed from a queue that is paused", jobs, err)
		}
		d.must("queue", "resume", "mails")
		if jobs, err := d.queues().DriverQueue("mails").Claim(t.Context(), claim); err != nil || len(jobs) != 1 {
			t.Errorf("%v, %v was claimed from a queue that is resumed", jobs, err)
		}
		for _, verb := range []string{"set nothing --max-attempts 2", "pause nothing", "resume nothing"} {
			d.cli(append([]string{"queue"}, strings.Fields(verb)...)...).wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
		}
	})
}

// uncounted is a store whose jobs must not be counted: with many jobs that would take longer than a verb waits.
type uncounted struct {
	*sqlite.Store
	settings bool // reading is allowed
}

func (uncounted) Close() error { return nil } // each verb does it

func (uncounted) QueueStatus(context.Context, ...string) ([]admin.QueueStatus, error) {
	return nil, context.DeadlineExceeded
}

func (u uncounted) QueueStatusUpTo(ctx context.Context, most int, names ...string) ([]admin.QueueStatus, error) {
	if most >= 0 || !u.settings {
		return nil, context.DeadlineExceeded
	}
	return u.Store.QueueStatus(ctx, names...)
}

// Verbs that change a queue's settings count no jobs, and succeed even if the settings cannot be read
// afterwards.
func TestSettingUpAQueueCountsNothing(t *testing.T) {
	t.Parallel()
	for _, readable := range []bool{true, false} {
		store := sqlitetest.New(t)
		d := newDesk(t, uncounted{store, readable}, func() driver.Database { return uncounted{store, readable} })
		if err := store.CreateQueue(t.Context(), "mails", penstock.FIFO); err != nil {
			t.Fatal(err)
		}
		for _, set := range []struct{ verb, all, this string }{
			{"pause mails", "paused", "paused"},
			{"set mails --max-attempts 5", "5 attempts, any number at a time, deduplication for 1h", "5 attempts"},
			{"set mails --max-running 3", "3 at a time, deduplication for 1h", "3 at a time"},
			{"set mails --dedup-window 60m", "deduplication for 1h", "deduplication for 1h"},
		} {
			out := d.must(append([]string{"queue"}, strings.Fields(set.verb)...)...)
			if readable {
				contains(t, out, set.all)
			} else {
				same(t, set.verb, out, "Queue mails: "+set.this+".\n")
			}
		}
		if out := d.must("queue", "resume", "mails"); !readable {
			same(t, "resume", out, "Queue mails: not paused.\n")
		}
		if readable {
			d.must("queue", "create", "mails", "--if-missing")
		}
	}
}

func TestStatusShowsQueues(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails", "--max-running", "10")
		d.outbox("orders", numbered(1)...)
		d.jobs("mails", "a", "b", "c")
		d.must("enqueue", "mails", "later", "--delay", "1h")
		job, err := d.queues().DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.queues().DriverQueue("mails").DeadLetter(t.Context(), job[0].Lease, "no such street"); err != nil {
			t.Fatal(err)
		}
		table := d.must("status")
		contains(t, table, "OUTBOX", "orders", "QUEUE", "1 of 10", "mails: 1 dead letter to retry or to discard: penstock dead list mails\n")
		for _, one := range []struct{ name, other string }{{"mails", "orders"}, {"orders", "mails"}} {
			if shown := d.must("status", one.name); strings.Contains(shown, one.other) {
				t.Errorf("status %s shows %s: %s", one.name, one.other, shown)
			}
		}
		d.cli("status", "nothing").wants(t, terminal.ExitFailure, `no such outbox: nor is there a queue of that name`)

		var status struct{ Outboxes, Queues []map[string]any }
		if err := json.Unmarshal([]byte(d.must("status", "--json")), &status); err != nil {
			t.Fatal(err)
		}
		if len(status.Outboxes) != 1 || len(status.Queues) != 1 {
			t.Fatalf("got %v", status)
		}
		for field, want := range map[string]any{
			"queue": "mails", "order": "fifo", "paused": false, "max_attempts": 25., "max_running": 10., "dedup_window_ns": 3600e9,
			"ready": 1., "running": 1., "delayed": 1., "waiting": 0., "dead_letters": 1.,
		} {
			if got := status.Queues[0][field]; got != want {
				t.Errorf("%s is %v, want %v", field, got, want)
			}
		}
	})
}

func TestStatusShowsGroups(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.must("queue", "create", "empty")
		for _, group := range []string{"acme", "acme", "globex", ""} {
			d.must("enqueue", "mails", "x", "--group", group)
		}
		d.must("enqueue", "mails", "x", "--group", "later", "--delay", "1h")
		if _, err := d.queues().DriverQueue("mails").Claim(t.Context(), driver.Claim{Group: "globex", Jobs: 1, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		_, table, found := strings.Cut(d.must("status", "mails", "--groups"), "QUEUE  GROUP ")
		if !found {
			t.Fatal("there is no table of groups")
		}
		for _, row := range []string{"mails - 1 0 0 0 0", "mails acme 2 0 0 0 0", "mails globex 0 - 1 0 0 0", "mails later 0 - 0 1 0 0"} {
			if !slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool {
				cells := strings.Fields(line)
				if len(cells) == 8 && cells[3] != "-" { // an age
					cells = slices.Delete(cells, 3, 4)
				}
				return strings.Join(cells, " ") == row
			}) {
				t.Errorf("%q is not in %s", row, table)
			}
		}
		var status struct {
			Queues []struct{ Groups []map[string]any }
		}
		if err := json.Unmarshal([]byte(d.must("status", "--groups", "--json")), &status); err != nil || len(status.Queues) != 2 || len(status.Queues[0].Groups) != 0 || len(status.Queues[1].Groups) != 4 {
			t.Fatalf("got %+v, %v", status, err)
		}
		for field, want := range map[string]any{"group": "acme", "ready": 2., "running": 0., "delayed": 0., "waiting": 0., "dead_letters": 0.} {
			if got := status.Queues[1].Groups[1][field]; got != want {
				t.Errorf("%s is %v, want %v", field, got, want)
			}
		}
		if plain := d.must("status", "--json"); strings.Contains(plain, `"groups"`) {
			t.Errorf("without --groups: %s", plain)
		}
	})
}
