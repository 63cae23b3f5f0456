package tablestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/wire"
)

// A process that is paused, or cut off, in the middle of a transaction keeps others waiting for some seconds, and not until it
// continues.
func pausedWithinATransaction(f *fixture) {
	suite.Get(f.Store.Status(f.Context())).Must(f, "Status")
	reached, goOn := make(chan struct{}), make(chan struct{})
	f.Proxy.Decide(func(trip []byte) wire.Fault {
		if bytes.Contains(trip, []byte("set epoch = epoch + 1")) {
			close(reached)
			<-goOn
			return wire.CutBefore
		}
		return wire.Pass
	})
	ended := make(chan error)
	ask := driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "paused"}
	go func() {
		_, err := f.Store.Subscribe(context.WithoutCancel(f.Context()), ask)
		ended <- err
	}()
	<-reached
	ask.Holder = "another"
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	_, err := f.Direct.Subscribe(ctx, ask)
	close(goOn)
	if another := <-ended; err != nil || another == nil {
		f.Errorf("another relay: %v; the one that was paused: %v, want an error", err, another)
	}
}

// Housekeeping that finds nothing to do does not wait for calls that settle or renew, and makes none wait. One subscription has
// settled everything, and another one, which is stopped, nothing.
func maintainLooksFirst(f *fixture) {
	settle := func(subscription string) {
		src := f.subscribe(subscription)
		for b := f.fetch(src); len(b.Messages) > 0; b = f.fetch(src) {
			f.OK(src.Settle(f.Context(), b.Number, driver.Settled{Batch: b}))
		}
		f.OK(src.Close(f.Context()))
	}
	settle("running")
	settle("stopped")
	f.publish("m")
	settle("running")
	tx := suite.Get(f.App.BeginTx(f.Context(), nil)).Must(f, "BeginTx")
	defer func() { _ = tx.Rollback() }()
	f.exec("update {schema}.subscriptions set settled = settled", tx)
	ctx, cancel := context.WithTimeout(f.Context(), 30*time.Second)
	defer cancel()
	f.OK(f.Direct.Maintain(ctx, "orders"), tx.Rollback())
	settle("stopped")
	f.OK(f.Direct.Maintain(f.Context(), "orders"))
	f.counts("select count(*) from {schema}.outbox_orders", 0)
}

// A job that is cancelled while a claim of it is under way leaves nothing behind that its key would wait for.
func cancelledWithinAClaim(f *fixture) {
	q := f.Direct.DriverQueue("jobs")
	for _, statement := range f.Gate {
		f.exec(statement)
	}
	two := []penstock.NewJob{{Key: "k", Payload: []byte("1")}, {Key: "k", Payload: []byte("2")}}
	made := suite.Get(q.Enqueue(f.Context(), two...)).Must(f, "Enqueue")
	closed := suite.Get(f.App.BeginTx(f.Context(), nil)).Must(f, "BeginTx")
	defer func() { _ = closed.Rollback() }()
	f.exec("select n from {schema}.gate for update", closed) // not changed: MariaDB 11.8 has a claim that meets a newer row run again
	claimed, cancelled := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := q.Claim(f.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
		claimed <- err
	}()
	f.await("the claim waits", func() bool { return f.count(f.Waiting) == 1 })
	go func() {
		n, err := f.Direct.CancelJobs(f.Context(), "jobs", made[0].ID)
		if err == nil && n != 1 {
			f.Errorf("cancelled %d, want 1", n)
		}
		cancelled <- err
	}()
	f.await("the cancellation waits or is over", func() bool { return len(cancelled) == 1 || f.count(f.Waiting) == 2 })
	f.OK(closed.Commit(), <-claimed, <-cancelled)
	suite.MustEqual(f, f.count("select count(*) from {schema}.leases"), 0, "leases left of a job that was cancelled")
	var jobs []penstock.Job
	f.Eventually("a job of the key is claimed", func() bool {
		jobs = suite.Get(q.Claim(f.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})).Must(f, "Claim")
		return len(jobs) > 0
	})
	if len(jobs) != 1 || string(jobs[0].Payload) != "2" {
		f.Errorf("claimed %+v, want the second job of the key", jobs)
	}
}

// await asks more seldom than every 100 ms: else MariaDB shows an old copy of who waits.
func (f *fixture) await(what string, condition func() bool) {
	for !condition() {
		if err := f.Context().Err(); err != nil {
			f.Fatalf("it does not come true that %s: %v", what, err)
		}
		time.Sleep(150 * time.Millisecond)
	}
}

// A schedule is not made while its queue is being dropped.
func scheduleOfADroppedQueue(f *fixture) {
	drop := suite.Get(f.App.BeginTx(f.Context(), nil)).Must(f, "BeginTx")
	defer func() { _ = drop.Rollback() }()
	f.exec("delete from {schema}.queues where name = 'jobs'", drop)
	set := make(chan error, 1)
	go func() {
		set <- f.Direct.SetSchedule(f.Context(), penstock.Schedule{Queue: "jobs", Name: "s", Cron: "@daily", Job: penstock.NewJob{}})
	}()
	f.await("the call waits or is over", func() bool { return len(set) == 1 || f.count(f.Waiting) == 1 })
	f.OK(drop.Commit())
	f.MustBe(<-set, penstock.ErrNoQueue, "SetSchedule")
	f.counts("select count(*) from {schema}.schedules", 0)
}

// A schedule of another version whose job or cron is refused keeps no other one from running, and is returned as an error.
func scheduleThatIsRefused(f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		f.OK(f.Direct.SetSchedule(f.Context(), penstock.Schedule{Queue: "jobs", Name: name, Cron: "@yearly", Job: penstock.NewJob{Payload: []byte(name)}}))
	}
	f.exec(`update {schema}.schedules set job = '{"Priority": 99}' where name = 'b'`)
	f.exec("update {schema}.schedules set next = " + f.Ago(time.Hour))
	q := f.Direct.DriverQueue("jobs")
	refused := func() {
		err := q.Maintain(f.Context())
		f.Fails(err, "Maintain")
		if _, is := errors.AsType[*penstock.FieldError](err); is {
			f.Errorf("Maintain returns a *FieldError, which ends a worker: %v", err)
		}
	}
	refused()
	f.OK(q.Maintain(f.Context()))
	f.exec("update {schema}.schedules set next = " + f.Ago(time.Hour))
	f.exec("update {schema}.schedules set cron = '@never' where name = 'b'")
	refused()
	jobs := suite.Get(q.Claim(f.Context(), driver.Claim{Jobs: 10, Lease: time.Hour})).Must(f, "Claim")
	var got []string
	for _, j := range jobs {
		got = append(got, string(j.Payload))
	}
	suite.Equal(f, got, []string{"a", "c", "a", "c"}, "schedules that ran")
}

// A row of a plain INSERT is refused, or it is read: none keeps others from being read.
func plainInserts(f *fixture) {
	src := f.subscribe("sub")
	for _, table := range []string{"outbox_orders", "queue_jobs"} {
		insert := func(headers string, key int) error {
			_, err := f.App.ExecContext(f.Context(), f.sql(fmt.Sprintf("insert into {schema}.%s (payload, headers, %s) values ('', '%s', repeat('k', %d))", table, f.Key, headers, key)))
			return err
		}
		for _, wrong := range []string{"", "x", "[]", "null", `"a"`} {
			if insert(wrong, 1) == nil {
				f.Errorf("%s: the headers %q were taken", table, wrong)
			}
		}
		if insert("{}", penstock.MaxKeyBytes+1) == nil {
			f.Errorf("%s: a key was taken that is too long", table)
		}
		f.OK(insert(`{"text": "a", "number": 1, "object": {"a": [true]}}`, penstock.MaxKeyBytes))
		f.UncheckHeaders(f, table)
		f.OK(insert("[1]", 1))
	}
	b := f.fetch(src)
	jobs := suite.Get(f.Direct.DriverQueue("jobs").Claim(f.Context(), driver.Claim{Jobs: 10, Lease: time.Hour})).Must(f, "Claim")
	if len(b.Messages) != 2 || len(jobs) != 2 {
		f.Fatalf("got %d messages and %d jobs, want 2 of each", len(b.Messages), len(jobs))
	}
	for i, h := range []map[string]string{b.Messages[0].Headers, jobs[0].Headers, b.Messages[1].Headers, jobs[1].Headers} {
		if i < 2 && (h["text"] != "a" || h["number"] != "1" || h["object"] != `{"a":[true]}` || len(h) != 3) || i >= 2 && h["penstock-invalid-headers"] != "[1]" {
			f.Errorf("the headers are %v", h)
		}
	}
}

// A deadline of a plain INSERT in another form than a time in UTC is ignored. Its job does not end with the expired one before it.
func plainDeadlines(f *fixture) {
	suite.Get(f.Direct.DriverQueue("jobs").Enqueue(f.Context(), penstock.NewJob{Deadline: time.Now().Add(-time.Hour)})).Must(f, "Enqueue")
	odd := []string{"", "0", "2000-01-01", "2000-01-01T00:00:00-05:00", "2000-01-01 00:00:00Z"}
	for _, deadline := range odd {
		f.exec(fmt.Sprintf(`insert into {schema}.queue_jobs (payload, headers) values ('%s', '{"penstock-deadline": "%[1]s"}')`, deadline))
	}
	var got []string
	for range 2 * len(odd) {
		for _, j := range suite.Get(f.Direct.DriverQueue("jobs").Claim(f.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})).Must(f, "Claim") {
			got = append(got, string(j.Payload))
		}
	}
	suite.Equal(f, got, odd, "the deadlines of jobs that were claimed")
}

// A reader whose subscribing was lost, with a dump that was restored or a replica that was promoted, is fenced, though the epoch
// that it had is given to another. Each call learns it.
func epochThatComesAgain(f *fixture, join func(ctx context.Context, req driver.Subscribe) (driver.Source, error)) {
	f.publish("m")
	for what, call := range map[string]func(src driver.Source, b driver.Batch) error{
		"renew": func(src driver.Source, _ driver.Batch) error { return src.Renew(f.Context()) },
		"settle": func(src driver.Source, b driver.Batch) error {
			return src.Settle(f.Context(), b.Number, driver.Settled{Batch: b})
		},
		"fetch": func(src driver.Source, _ driver.Batch) error {
			_, err := src.Fetch(f.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
			return err
		},
	} {
		subscribe := func(holder string) driver.Source {
			src := suite.Get(join(f.Context(), driver.Subscribe{Outbox: "orders", Subscription: what, Holder: holder, Lease: time.Hour})).Must(f, "Join")
			return src
		}
		before := subscribe("before")
		b := f.fetch(before)
		f.exec("update {schema}.subscriptions set epoch = epoch - 1, holder = '', lease_until = '1970-01-01' where name = '" + what + "'")
		if _, ok := f.Direct.(driver.Sharer); ok {
			f.exec("delete from {schema}.members")
		}
		after := subscribe("after")
		suite.MustEqual(f, len(f.fetch(after).Messages), 1, "messages")
		if err := call(before, b); !errors.Is(err, penstock.ErrFenced) {
			f.Errorf("%s: %v, want ErrFenced", what, err)
		}
		f.OK(before.Close(f.Context()), after.Renew(f.Context()))
		all := suite.Get(f.Direct.Status(f.Context())).Must(f, "Status")
		for _, s := range all[0].Subscriptions {
			if s.Subscription == what && (s.Settled != 0 || s.Holder != "after") {
				f.Errorf("%s: %d settled, held by %q", what, s.Settled, s.Holder)
			}
		}
		f.OK(after.Close(f.Context()))
	}
}
