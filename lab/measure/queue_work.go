package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/work"
)

// byHandConns is how many connections the hand-written loop has: as many as a store's pool.
const byHandConns = 4

func workCell() QueueCell {
	var o work.Options
	o.SetDefaults()
	return QueueCell{Op: OpWork, Mode: ModeCall, Batch: o.Batch, Workers: o.Concurrency}
}

// drained counts the jobs that the handler was called with.
type drained struct {
	jobs  int64
	start time.Time
	done  atomic.Int64
	last  atomic.Int64       // nanoseconds after the start
	stop  context.CancelFunc // called with the last job
}

// handle is a handler that does nothing.
func (d *drained) handle() {
	d.last.Store(int64(time.Since(d.start)))
	if d.done.Add(1) == d.jobs {
		d.stop()
	}
}

// drainTurns are how often each side of OpWork drains a separate backlog, which takes less than a second.
const drainTurns = 5

// drains has each side drain in turns, every other turn the other way round. All of Penstock's have the store's pool of
// connections, by hand each has new ones.
func (cfg QueueConfig) drains(ctx context.Context, c *QueueCell, ours, theirs, leased contender) error {
	var rates [3][]float64
	var ratios, ratiosLeased []float64
	for turn := range drainTurns {
		var now [3]float64
		for i := range now {
			if turn%2 == 1 {
				i = len(now) - 1 - i
			}
			of, workers := []contender{ours, theirs, leased}[i], cfg.byHand
			if i == 0 {
				workers = cfg.engine
			}
			var err error
			if now[i], err = cfg.drain(ctx, of, workers); err != nil {
				return err
			}
			rates[i] = append(rates[i], now[i])
		}
		ratios, ratiosLeased = append(ratios, over(now[0], now[1])), append(ratiosLeased, over(now[0], now[2]))
	}
	c.Penstock, c.Baseline, c.Leased = median(rates[0]), median(rates[1]), median(rates[2])
	c.Ratio, c.RatioLeased = median(ratios), median(ratiosLeased)
	return nil
}

// drain has workers handle a backlog until it is empty or the time is up.
func (cfg QueueConfig) drain(ctx context.Context, c contender, workers func(context.Context, contender, *drained) error) (perSecond float64, err error) {
	c.Progress = nil // the cell has said it
	return perSecond, c.in(ctx, func(keeper *session) error {
		if err := c.fill(keeper, cfg.Jobs, bytes.Repeat([]byte("x"), max(cfg.PayloadBytes, 0))); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, cfg.Longest)
		defer cancel()
		d := &drained{jobs: int64(cfg.Jobs), stop: cancel, start: time.Now()}
		if err := workers(ctx, c, d); err != nil {
			return err
		}
		perSecond = over(float64(d.done.Load()), time.Duration(d.last.Load()).Seconds())
		left, err := c.rest(keeper)
		if err != nil {
			return err
		}
		return c.wrong(d.jobs, d.done.Load(), left, 0)
	})
}

// engine is work.Run with its defaults.
func (cfg QueueConfig) engine(ctx context.Context, _ contender, d *drained) error {
	return work.Run(ctx, cfg.Store.DriverQueue(cfg.Name+"_queue"), func(context.Context, penstock.Job) error {
		d.handle()
		return nil
	}, work.Options{Worker: "bench"})
}

// byHand is the loop that a program without a library has: one statement takes a hundred jobs, and with leases another one ends them.
func (cfg QueueConfig) byHand(ctx context.Context, c contender, d *drained) error {
	var wg sync.WaitGroup
	failed := make([]error, byHandConns)
	for i := range failed {
		wg.Go(func() { failed[i] = c.loop(ctx, time.Millisecond, func([]byte) { d.handle() }) })
	}
	wg.Wait()
	return errors.Join(failed...)
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
			if _, err := s.do("ending a hundred", ack, took); err != nil {
				return err
			}
		}
	}
	return nil
}
