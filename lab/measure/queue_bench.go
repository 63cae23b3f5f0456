package measure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// QueueConfig is one run of the queue benchmark.
type QueueConfig struct {
	Database
	// Store is on the same database and schema. OpWork needs it.
	Store driver.QueueStore
	// Pin holds a snapshot throughout. May be nil.
	Pin func(ctx context.Context) (release func(), err error)

	Ops          []string      // of QueueOps; default all
	Batches      []int         // jobs at a time; default 1, 10, 100, 1,000
	Workers      []int         // default 1, 10, 50
	Jobs         int           // of a cell, at most; default 100,000
	Longest      time.Duration // of a cell; default 2 s
	PayloadBytes int           // default 200, negative: none
}

// QueueResult has a cell for each combination.
type QueueResult struct {
	Jobs         int         `json:"jobs"`
	PayloadBytes int         `json:"payload_bytes"`
	Cells        []QueueCell `json:"cells"`
}

// QueueCell is one combination on both queues. Rates are jobs per second. Of OpWork there is one: Workers
// are handlers and Batch what a claim asks for at most, as work.Run has them by default; by hand it is byHandConns.
// Of what adds and of OpWork, all have been in turns, and ratios are the medians of these.
type QueueCell struct {
	Op       string  `json:"op"`
	Mode     string  `json:"mode"`
	Batch    int     `json:"batch"`
	Workers  int     `json:"workers"`
	Penstock float64 `json:"penstock"`
	Baseline float64 `json:"baseline"` // INSERT, or DELETE … SKIP LOCKED … RETURNING, by hand; the business without a message
	Ratio    float64 `json:"ratio"`
	// Of OpClaim and OpWork: by hand with leases, an UPDATE … SKIP LOCKED … RETURNING and a DELETE.
	Leased      float64 `json:"leased,omitempty"`
	RatioLeased float64 `json:"ratio_leased,omitempty"`
	// Of OpBusiness: with its message in a plain table with an outbox's columns, which is what an INSERT costs anyway.
	Plain      float64 `json:"plain,omitempty"`
	RatioPlain float64 `json:"ratio_plain,omitempty"`
}

// SetDefaults fills in the unset fields.
func (c *QueueConfig) SetDefaults() {
	if len(c.Ops) == 0 {
		c.Ops = QueueOps
	}
	if len(c.Batches) == 0 {
		c.Batches = []int{1, 10, 100, 1000}
	}
	if len(c.Workers) == 0 {
		c.Workers = []int{1, 10, 50}
	}
	c.Jobs = cmp.Or(c.Jobs, 100_000)
	c.Longest = cmp.Or(c.Longest, 2*time.Second)
	c.PayloadBytes = cmp.Or(c.PayloadBytes, 200)
}

// Validate refuses values that cannot be measured.
func (c QueueConfig) Validate() error {
	c.SetDefaults()
	for _, op := range c.Ops {
		if !slices.Contains(QueueOps, op) {
			return fmt.Errorf("%q cannot be measured, expected %v", op, QueueOps)
		}
	}
	switch {
	case slices.Min(c.Batches) < 1 || slices.Max(c.Batches) > driver.MaxClaim:
		return fmt.Errorf("a batch has 1 to %d jobs", driver.MaxClaim)
	case slices.Min(c.Workers) < 1 || c.Jobs < 1 || c.Longest <= 0:
		return errors.New("it takes at least one worker, one job and some time")
	case c.PayloadBytes > penstock.MaxPayloadBytes:
		return fmt.Errorf("the payload is larger than the limit of %d bytes", penstock.MaxPayloadBytes)
	}
	return nil
}

// Queue measures how many jobs go in and out, cell by cell, each on a new queue
// and a new hand-written table. Every other cell begins with the latter.
func Queue(ctx context.Context, cfg QueueConfig) (result QueueResult, err error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return result, err
	}
	result.Jobs, result.PayloadBytes = cfg.Jobs, max(cfg.PayloadBytes, 0)
	release, err := pinned(ctx, cfg.Pin)
	if err != nil {
		return result, err
	}
	defer release()
	for _, op := range cfg.Ops {
		if op == OpWork {
			result.Cells = append(result.Cells, workCell())
			continue
		}
		if op == OpBusiness {
			for _, workers := range cfg.Workers {
				for _, mode := range []string{ModeTx, ModePipelined} {
					result.Cells = append(result.Cells, QueueCell{Op: op, Mode: mode, Batch: 1, Workers: workers})
				}
			}
			continue
		}
		for _, batch := range cfg.Batches {
			for _, workers := range cfg.Workers {
				result.Cells = append(result.Cells, QueueCell{Op: op, Mode: ModeCall, Batch: batch, Workers: workers})
				if batch == 1 {
					result.Cells = append(result.Cells, QueueCell{Op: op, Mode: ModeTx, Batch: batch, Workers: workers})
				}
				if op == OpClaim {
					result.Cells = append(result.Cells, QueueCell{Op: op, Mode: ModeCarried, Batch: batch, Workers: workers})
				}
			}
		}
	}
	for i := range result.Cells {
		c := &result.Cells[i]
		cfg.progress("%d of %d: %s, mode %s, batches of %d, %d workers", i+1, len(result.Cells), c.Op, c.Mode, c.Batch, c.Workers)
		if c.Op == OpBusiness {
			if err := cfg.inTurns(ctx, c, business(cfg.Database, c.Mode, c.Workers, cfg.Jobs)); err != nil {
				return result, err
			}
			continue
		}
		ours, theirs := operations(cfg.Database, c.Op, c.Mode, c.Batch)
		if ours.adds {
			if err := cfg.inTurns(ctx, c, []operation{ours, theirs}); err != nil {
				return result, err
			}
			continue
		}
		leased := leasedByHand(cfg.Database, c.Mode)
		if c.Op == OpWork {
			if err := cfg.drains(ctx, c, ours.contender, theirs.contender, leased.contender); err != nil {
				return result, err
			}
			continue
		}
		sides := []func() error{
			func() (err error) { c.Penstock, err = cfg.cell(ctx, ours, c.Batch, c.Workers); return err },
			func() (err error) { c.Baseline, err = cfg.cell(ctx, theirs, c.Batch, c.Workers); return err },
		}
		if c.Op == OpClaim {
			sides = append(sides, func() (err error) { c.Leased, err = cfg.cell(ctx, leased, c.Batch, c.Workers); return err })
		}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return result, err
			}
		}
		c.Ratio, c.RatioLeased = over(c.Penstock, c.Baseline), over(c.Penstock, c.Leased)
	}
	return result, nil
}

// cell measures an operation that takes, until all jobs are done or the time is up.
func (cfg QueueConfig) cell(ctx context.Context, op operation, batch, workers int) (perSecond float64, err error) {
	quiet := op.contender
	quiet.Progress = nil // the cell has said it
	return perSecond, quiet.in(ctx, func(keeper *session) error {
		if err := quiet.fill(keeper, cfg.Jobs, cfg.payload()); err != nil {
			return err
		}
		w := &cellWork{operation: op, batch: batch}
		defer w.close()
		if err := w.open(ctx, workers, cfg.payload()); err != nil {
			return err
		}
		if perSecond, err = w.run(ctx, cfg.Jobs, cfg.Longest); err != nil {
			return err
		}
		left, err := quiet.rest(keeper)
		if err != nil {
			return err
		}
		return quiet.wrong(int64(cfg.Jobs), w.done.Load(), left, 0)
	})
}

// inTurns measures what adds: ours, theirs, and perhaps the plain table's. Each comes ten times, and more often in a longer cell, so
// that whatever else the machine does meets all.
func (cfg QueueConfig) inTurns(ctx context.Context, c *QueueCell, operations []operation) error {
	turns := max(10, int(cfg.Longest/(200*time.Millisecond)))
	var sides []*cellWork
	defer func() {
		for _, w := range sides {
			w.close()
		}
	}()
	return allIn(ctx, operations, func(keeper *session) error {
		for _, op := range operations {
			w := &cellWork{operation: op, batch: c.Batch}
			sides = append(sides, w)
			if err := w.open(ctx, c.Workers, cfg.payload()); err != nil {
				return err
			}
		}
		rates, ratios := make([][]float64, len(sides)), make([][]float64, len(sides))
		for turn := range turns {
			for i := range sides {
				side := (i + turn) % len(sides)
				rate, err := sides[side].run(ctx, max(cfg.Jobs/turns, 1), cfg.Longest/time.Duration(turns))
				if err != nil {
					return err
				}
				rates[side] = append(rates[side], rate)
			}
			for i := range sides {
				ratios[i] = append(ratios[i], over(rates[i][turn], rates[1][turn]))
			}
		}
		c.Penstock, c.Baseline, c.Ratio = median(rates[0]), median(rates[1]), median(ratios[0])
		if len(sides) > 2 {
			c.Plain, c.RatioPlain = median(rates[2]), median(ratios[2])
		}
		return wrongAfter(keeper, c.Op, sides)
	})
}

// allIn makes the tables of all, in their order, lets do have them, and removes them.
func allIn(ctx context.Context, operations []operation, do func(*session) error) error {
	first := operations[0]
	first.Progress = nil // the cell has said it
	return first.in(ctx, func(s *session) error {
		if len(operations) == 1 {
			return do(s)
		}
		return allIn(ctx, operations[1:], do)
	})
}

// wrongAfter is the error of tables that do not hold the rows written into them.
func wrongAfter(s *session, op string, sides []*cellWork) error {
	var all int64
	for _, w := range sides {
		all += w.done.Load()
	}
	for i, w := range sides {
		want := w.done.Load()
		if op == OpBusiness && i == 1 { // the bank, in which all are
			want = all
		}
		left, err := w.rest(s)
		if err == nil {
			err = w.wrong(want, 0, left, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (cfg QueueConfig) payload() []byte { return bytes.Repeat([]byte("x"), max(cfg.PayloadBytes, 0)) }

// cellWork is the workers of one side of a cell.
type cellWork struct {
	operation
	batch    int
	sessions []*session
	params   []byte
	done     atomic.Int64 // in all runs

	// Of a run:
	jobs  int64 // done at its end
	start time.Time
	until time.Time
	last  atomic.Int64 // nanoseconds after the start, when a job was done
}

// open connects and makes plans.
func (w *cellWork) open(ctx context.Context, workers int, payload []byte) error {
	for range workers {
		s, err := w.connect(ctx)
		if err != nil {
			return fmt.Errorf("connecting the workers: %w", err)
		}
		w.sessions = append(w.sessions, s)
		if err := s.prepare(w.sql, w.prepared...); err != nil {
			return err
		}
		if err := s.prepare(statements{"commit": "commit"}, "commit"); err != nil {
			return err
		}
		if err := w.warm(s, payload); err != nil {
			return err
		}
		if w.params, err = w.operation.params(s, w.batch, payload); err != nil {
			return err
		}
	}
	return nil
}

func (w *cellWork) close() {
	for _, s := range w.sessions {
		s.close()
	}
}

// run works until the given number of jobs more is done, or for the given time.
func (w *cellWork) run(ctx context.Context, jobs int, longest time.Duration) (perSecond float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	before := w.done.Load()
	w.jobs = before + int64(jobs)
	w.last.Store(0)
	w.start = time.Now()
	w.until = w.start.Add(longest)
	var wg sync.WaitGroup
	for _, s := range w.sessions {
		wg.Go(func() {
			if err := w.work(ctx, s); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return over(float64(w.done.Load()-before), time.Duration(w.last.Load()).Seconds()), context.Cause(ctx)
}

func (w *cellWork) work(ctx context.Context, s *session) error {
	err := w.loop(ctx, s)
	if w.end != nil && err == nil {
		if err = w.end(s); err == nil {
			w.note(time.Now())
		}
	}
	return err
}

// note notes when jobs were done, if none were later.
func (w *cellWork) note(now time.Time) {
	for took := int64(now.Sub(w.start)); ; {
		if last := w.last.Load(); took <= last || w.last.CompareAndSwap(last, took) {
			return
		}
	}
}

func (w *cellWork) loop(ctx context.Context, s *session) error {
	for w.done.Load() < w.jobs && ctx.Err() == nil {
		n, err := w.once(s, w.params)
		if err != nil {
			return err
		}
		now := time.Now()
		if n > 0 {
			w.done.Add(int64(n))
			w.note(now)
		}
		if now.After(w.until) {
			return nil
		}
		if n == 0 { // others have locked the remaining jobs
			if err := sleepUntil(ctx, now.Add(time.Millisecond)); err != nil {
				return err
			}
		}
	}
	return nil
}
