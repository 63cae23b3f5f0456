package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// byHandConns is how many connections the hand-written loop has: as many as a store's pool.
const byHandConns = 4

// drained counts the jobs that the handler was called with.
type drained struct {
	jobs  int64
	start time.Time
	done  atomic.Int64
	last  latest             // a job was done
	stop  context.CancelFunc // called with the last job
}

// handle is a handler that does nothing.
func (d *drained) handle() {
	d.last.note(time.Since(d.start))
	if d.done.Add(1) == d.jobs {
		d.stop()
	}
}

// drainTurns are how often each side of OpWork drains a separate backlog, which takes less than a second.
const drainTurns = 5

// drain has workers handle a backlog until it is empty or the time is up. Ours is work.Run with its defaults and the store's pool
// of connections. By hand it is the loop that a program without a library has: one statement takes a hundred jobs, and with leases
// another one ends them.
func (cfg QueueConfig) drain(ctx context.Context, c contender, ours bool) (perSecond float64, err error) {
	return perSecond, c.in(ctx, func(keeper *session) error {
		if err := c.fill(keeper, cfg.Jobs, cfg.payload()); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, cfg.Longest)
		defer cancel()
		d := &drained{jobs: int64(cfg.Jobs), stop: cancel, start: time.Now()}
		if ours {
			queue := cfg.Store.(driver.QueueStore).DriverQueue(cfg.Name + "_queue")
			err = work.Run(ctx, queue, func(context.Context, penstock.Job) error { d.handle(); return nil }, work.Options{Worker: "bench"})
		} else {
			failed := make([]error, byHandConns)
			var wg sync.WaitGroup
			for i := range failed {
				wg.Go(func() { failed[i] = c.loop(ctx, time.Millisecond, func([]byte) { d.handle() }) })
			}
			wg.Wait()
			err = errors.Join(failed...)
		}
		if err != nil {
			return err
		}
		perSecond = over(float64(d.done.Load()), d.last.seconds())
		_, err = c.checked(keeper, d.jobs, d.done.Load(), 0)
		return err
	})
}

// loop takes jobs until ctx ends, of which a statement that runs does not hear: what it has deleted is gone. It
// pauses when there are none.
func (c contender) loop(ctx context.Context, pause time.Duration, handle func(payload []byte)) error {
	s, err := c.connect(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer s.close()
	var job struct {
		id      int64
		payload []byte
	}
	ack := c.sql["ack"]
	var took []int64
	for ctx.Err() == nil {
		rows, err := s.conn.Query(s.ctx, c.sql["drain"])
		if err != nil {
			return fmt.Errorf("taking a hundred: %w", err)
		}
		took = took[:0]
		for rows.Next() {
			if err := rows.Scan(&job.id, &job.payload); err != nil {
				return err
			}
			took = append(took, job.id)
			handle(job.payload)
		}
		if err := rows.Err(); err != nil {
			return s.explain("taking a hundred", err)
		}
		if len(took) == 0 {
			_ = sleepUntil(ctx, time.Now().Add(pause))
		} else if ack != "" {
			if err := s.do("ending a hundred", ack, took); err != nil {
				return err
			}
		}
	}
	return nil
}
