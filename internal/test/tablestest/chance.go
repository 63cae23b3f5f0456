package tablestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/wire"
)

// again calls once more where no connection could be made: then nothing has happened.
func again(call func() error) (err error) {
	for range 100 {
		var none *pgconn.ConnectError
		if err = call(); !errors.As(err, &none) {
			break
		}
	}
	return err
}

// byChance has round trips fail from now on, now and then: what is asked once, of the schema and the queue, was asked.
func (f *fixture) byChance(part int) {
	rnd := f.Random(part)
	f.Proxy.Decide(func([]byte) wire.Fault { return wire.Some(rnd, f.faults...) })
}

func (f *fixture) tell() {
	f.Logf("run again %v; %d refused, %d cut before, %d after", f.Store.Retries(), f.Proxy.Happened(wire.Refuse), f.Proxy.Happened(wire.CutBefore), f.Proxy.Happened(wire.CutAfter))
}

// Random calls, repeated many times, write once each, also where connections are lost while that is looked up.
func writesByChance(f *fixture) {
	n := testseed.Steps(100)
	for i := range n {
		if i == 1 {
			f.byChance(0)
		}
		payload := fmt.Append(nil, i)
		f.OK(again(func() error { return f.Store.Publish(f.Context(), "orders", penstock.Message{Payload: payload}) }))
		f.OK(again(func() error {
			_, err := f.q.Enqueue(f.Context(), penstock.NewJob{Payload: payload})
			return err
		}))
	}
	for _, table := range []string{"outbox_orders", "queue_jobs"} {
		f.counts("select count(*) from {schema}."+table, n)
		f.counts("select count(distinct payload) from {schema}."+table, n)
	}
	f.tell()
}

// The same of what ends jobs, by chance, many times, with what is lost while it runs again.
func endingsByChance(f *fixture) {
	rnd := f.Random(0)
	var jobs []penstock.Job
	dead, attempt := 0, 0
	for i := range testseed.Steps(150) {
		if len(jobs) == 0 && attempt == 0 {
			suite.Get(f.Direct.DriverQueue("jobs").Enqueue(f.Context(), penstock.NewJob{})).Must(f, "Enqueue")
			attempt = 1
		}
		for len(jobs) == 0 {
			f.OK(again(func() (err error) {
				jobs, err = f.q.Claim(f.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
				return err
			}))
		}
		suite.MustEqual(f, jobs[0].Attempt, attempt, "attempt of %+v", jobs[0])
		lease, held := jobs[0].Lease, []int64{jobs[0].Lease}
		then := rnd.IntN(5)
		f.OK(again(func() (err error) {
			switch then {
			case 0:
				held, err = f.q.Extend(f.Context(), time.Hour, lease)
			case 1:
				held, err = f.q.(driver.Releaser).Release(f.Context(), 0, lease)
			case 2:
				_, err = f.q.Retry(f.Context(), lease, 0, "broken")
			case 3:
				held, err = f.q.Ack(f.Context(), lease)
			case 4:
				err = f.q.DeadLetter(f.Context(), lease, "broken")
			}
			return err
		}))
		suite.MustEqual(f, held, []int64{lease}, "held by call %d of lease %d", then, lease)
		if then > 0 {
			jobs = nil
		}
		switch then {
		case 2:
			attempt++
		case 3:
			attempt = 0
		case 4:
			attempt = 0
			dead++
		}
		if i == 0 {
			f.byChance(1)
		}
	}
	f.counts("select count(*) from {schema}.dead_jobs", dead)
	f.tell()
}

// A server that does not let anybody in for a while, as one that starts again, is waited for: what has happened is not known before.
func waitsForTheServer(f *fixture) {
	suite.Get(f.q.Enqueue(f.Context(), penstock.NewJob{}, penstock.NewJob{})).Must(f, "Enqueue")
	jobs := suite.Get(f.q.Claim(f.Context(), driver.Claim{Jobs: 2, Lease: time.Hour})).Must(f, "Claim")
	suite.Get(f.q.Ack(f.Context(), jobs[0].Lease)).Must(f, "Ack")
	lost := false
	f.Proxy.Decide(func(trip []byte) wire.Fault {
		if !lost && bytes.Contains(trip, []byte("delete ")) {
			lost = true
			f.Proxy.Closed.Store(3)
			return wire.CutAfter
		}
		return wire.Pass
	})
	held := suite.Get(f.q.Ack(f.Context(), jobs[1].Lease)).Must(f, "Ack")
	if left := f.Proxy.Closed.Load(); len(held) != 1 || left >= 0 {
		f.Errorf("held %v, want one; %d connections are to come to nothing still", held, left)
	}
}

// Workers of one process claim at the same time, and every other one gives up after a moment. Their leases last longer than the test, so a job that was claimed for a
// worker that had gone comes back only if it is given back. That spends no attempt.
func impatientWorkers(f *fixture) {
	const workers = 8
	left := testseed.Steps(200)
	q := f.Direct.DriverQueue("jobs")
	suite.Get(q.Enqueue(f.Context(), make([]penstock.NewJob, left)...)).Must(f, "Enqueue")
	var acked atomic.Int64
	f.OK(suite.Concurrently(workers, func(worker int) error {
		rnd := f.Random(worker)
		for int(acked.Load()) < left {
			if f.Context().Err() != nil {
				return fmt.Errorf("%d of %d jobs were claimed and acked", acked.Load(), left)
			}
			ctx, cancel := f.Context(), func() {}
			if rnd.IntN(2) == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rnd.Int64N(int64(20*time.Millisecond))))
			}
			jobs, err := q.Claim(ctx, driver.Claim{Jobs: 1 + rnd.IntN(3), Lease: time.Hour})
			cancel()
			if err != nil && ctx.Err() == nil {
				return err
			}
			for _, j := range jobs {
				if j.Attempt != 1 {
					return fmt.Errorf("job %d is claimed with attempt %d", j.ID, j.Attempt)
				}
				held, err := q.Ack(f.Context(), j.Lease)
				if err != nil || len(held) != 1 {
					return fmt.Errorf("ack of job %d: %d, %w", j.ID, held, err)
				}
				acked.Add(1)
			}
		}
		return nil
	}))
}
