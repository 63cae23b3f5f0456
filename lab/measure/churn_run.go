package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/test/rocksdb"
)

// churnRun is a run of churn at work: one goroutine, because the published loop is
// one, and a few for maintenance.
type churnRun struct {
	cfg      ChurnConfig
	interval time.Duration
	churners []*churner
	start    time.Time
}

// remove closes all, also after an interrupt.
func (r *churnRun) remove(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, c := range r.churners {
		err = errors.Join(err, c.close(ctx))
	}
	return err
}

// run continues until the time is up, and then empties what can be emptied.
func (r *churnRun) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel(nil)
	for _, c := range r.churners {
		c.curve.Inserted = int64(r.cfg.Batch) // the preload
		for every, do := range map[time.Duration]func(context.Context) error{time.Second: c.keep, leaseTick: c.renew} {
			if do == nil {
				continue
			}
			background.Go(func() {
				if err := repeat(ctx, every, do); err != nil {
					cancel(fmt.Errorf("%s: %w", c.label, err))
				}
			})
		}
	}
	r.cfg.progress("warming up for %s", r.cfg.warmUp())
	for begun := time.Now(); time.Since(begun) < r.cfg.warmUp(); {
		for _, c := range r.churners {
			if _, _, err := r.insertAndConsume(c); err != nil {
				return errors.Join(err, context.Cause(ctx))
			}
		}
	}
	for _, c := range r.churners {
		if _, err := c.look(); err != nil {
			return err
		}
		if r.cfg.Late > 0 {
			if err := c.beginLate(ctx); err != nil {
				return err
			}
		}
		c.consuming = newTimeline(r.cfg.Duration, r.interval/10)
		c.busy, c.rows, c.calls = make([]time.Duration, intervals+1), make([]int64, intervals+1), make([]rocksdb.Calls, intervals+1)
	}
	r.cfg.progress("inserting and consuming for %s", r.cfg.Duration)
	r.start = time.Now()
	for _, c := range r.churners {
		c.consuming.start = r.start
	}
	for time.Since(r.start) < r.cfg.Duration {
		for _, c := range r.churners {
			if err := r.turn(ctx, c); err != nil {
				return errors.Join(err, context.Cause(ctx))
			}
		}
	}
	for _, c := range r.churners {
		if err := r.finish(ctx, c); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	return context.Cause(ctx)
}

// leaseTick is a third of the default lease.
const leaseTick = 5 * time.Second

// repeat calls do until it fails or ctx ends.
func repeat(ctx context.Context, every time.Duration, do func(context.Context) error) error {
	for {
		if sleepUntil(ctx, time.Now().Add(every)) != nil {
			return nil
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// insertAndConsume inserts a batch and consumes one.
func (r *churnRun) insertAndConsume(c *churner) (inserted time.Time, n int, err error) {
	if _, err := c.session.run(c.insert); err != nil {
		return inserted, 0, fmt.Errorf("%s: %w", c.label, err)
	}
	c.curve.Inserted += int64(r.cfg.Batch)
	inserted = time.Now()
	if n, err = c.consume(); err != nil {
		return inserted, 0, fmt.Errorf("%s: consuming: %w", c.label, err)
	}
	c.curve.Consumed += int64(n)
	return inserted, n, nil
}

// turn does so, and notes how long it took.
func (r *churnRun) turn(ctx context.Context, c *churner) error {
	if err := r.commitLate(ctx, c); err != nil {
		return err
	}
	calls, err := r.cfg.calls(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	inserted, n, err := r.insertAndConsume(c)
	if err != nil {
		return err
	}
	now := time.Now()
	c.consuming.note(now, now.Sub(inserted))
	at := now.Sub(r.start)
	if at <= r.cfg.Duration {
		c.last = at
	}
	if i := int(at / r.interval); i < len(c.busy) {
		c.busy[i] += now.Sub(start)
		c.rows[i] += int64(n)
		after, err := r.cfg.calls(ctx)
		if err != nil {
			return err
		}
		c.calls[i] = c.calls[i].Plus(after.Since(calls))
	}
	for time.Duration(len(c.sizes))*r.interval <= at {
		if _, err := c.look(); err != nil {
			return err
		}
	}
	return nil
}

// commitLate does so when it is time.
func (r *churnRun) commitLate(ctx context.Context, c *churner) error {
	if c.late == nil || !c.lateCommitted.IsZero() || time.Since(r.start) < r.cfg.Late {
		return nil
	}
	if err := c.late.say("commit"); err != nil {
		return fmt.Errorf("%s: committing the late row: %w", c.label, err)
	}
	c.lateCommitted = time.Now()
	c.curve.Inserted++
	return nil
}

// look reads the size: at the start, and at the end of each interval.
func (c *churner) look() (size int64, err error) {
	if err := c.session.value("reading the size", c.sql[c.size], &size); err != nil {
		return 0, err
	}
	c.sizes = append(c.sizes, size)
	return size, nil
}

// finish consumes the remaining jobs, for as long as something may still be found, and puts the
// curve together.
func (r *churnRun) finish(ctx context.Context, c *churner) error {
	if err := r.commitLate(ctx, c); err != nil {
		return err
	}
	size, err := c.look()
	if err != nil {
		return err
	}
	for found := time.Now(); ; {
		n, err := c.consume()
		if err != nil {
			return fmt.Errorf("%s: consuming: %w", c.label, err)
		}
		c.curve.Consumed += int64(n)
		if n > 0 {
			found = time.Now()
		}
		left, late, err := c.left()
		if err != nil {
			return err
		}
		// By hand the late row is never found: that is what this experiment shows.
		if c.curve.Left = left; left <= 0 || n == 0 && (c.byHand || time.Since(found) > 2*r.cfg.sweep()+patience) {
			r.curve(c, size, !late)
			return nil
		}
		if n == 0 {
			if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
				return err
			}
		}
	}
}

// curve puts the notes together.
func (r *churnRun) curve(c *churner, size int64, lateDelivered bool) {
	curve := c.curve
	var rows int64
	var busy time.Duration
	for i := range intervals {
		from := time.Duration(i) * r.interval
		rows, busy = rows+c.rows[i], busy+c.busy[i]
		interval := c.consuming.between(from, from+r.interval).interval(from+r.interval, over(float64(c.rows[i]), c.busy[i].Seconds()))
		interval.SizeBytes = c.sizes[min(i+1, len(c.sizes)-1)]
		curve.Intervals = append(curve.Intervals, interval)
	}
	sum := func(from, to int) *CallsPerJob {
		var rows int64
		var calls rocksdb.Calls
		for i := from; i < to; i++ {
			rows, calls = rows+c.rows[i], calls.Plus(c.calls[i])
		}
		return perJob(calls, rows)
	}
	curve.RocksDB, curve.FirstRocksDB, curve.LastRocksDB = sum(0, intervals), sum(0, intervals/4), sum(intervals*3/4, intervals)
	curve.RowsPerSecond = over(float64(rows), busy.Seconds())
	window := min(time.Minute, r.cfg.Duration/4)
	// A contender that is stuck holds up the others, by hand for minutes: the last minute is that of turns.
	first, last := c.consuming.between(0, window), c.consuming.between(c.last-window, c.last)
	curve.FirstAndLast, curve.FirstMeanMS, curve.LastMeanMS = firstAndLast(first, last), first.meanMS(), last.meanMS()
	curve.Flatness = over(curve.LastMeanMS, curve.FirstMeanMS)
	curve.FlatnessP50, curve.FlatnessP99 = over(curve.LastP50MS, curve.FirstP50MS), over(curve.LastP99MS, curve.FirstP99MS)
	curve.Sizes = Sizes{c.sizes[0], slices.Max(c.sizes), size}
	if !c.lateCommitted.IsZero() {
		curve.Late = &LateRow{CommittedAt: c.lateCommitted.Sub(r.start).Seconds(), Delivered: lateDelivered}
		if !c.lateAt.IsZero() {
			curve.Late.After = c.lateAt.Sub(c.lateCommitted).Seconds()
		}
	}
}

// wrong is the error of a way of Penstock's that lost a row, or gave it out twice.
func (r *churnRun) wrong() error {
	for _, c := range r.churners {
		lost := c.curve.Inserted - c.curve.Consumed
		if c.byHand {
			lost -= c.curve.Left
		} else if lost == 0 {
			lost = c.curve.Left // it was handed out, and not settled
		}
		if lost != 0 {
			return &CheckError{When: fmt.Sprintf("%s: %d rows in, %d out, %d left", c.label, c.curve.Inserted, c.curve.Consumed, c.curve.Left),
				Check: Check{By: "consumer", Lost: int(max(lost, 0)), Duplicates: int(max(-lost, 0))}}
		}
	}
	return nil
}
