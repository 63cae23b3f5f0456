package measure

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/work"
)

// QueueConfig is one run of queue.
type QueueConfig struct {
	Setup
	Ops     []string      `help:"what to measure"`
	Batches []int         `help:"jobs at a time" range:"1..10000"`
	Workers []int         `help:"connections that work at a time" range:"1.."`
	Jobs    int           `help:"jobs of a cell, at most" range:"1.."`
	Longest time.Duration `help:"duration of a cell, at most" range:"1ms.."`
	Payload int           `help:"bytes of each payload" range:"0..67108864"`
	Pin     bool          `help:"hold a REPEATABLE READ snapshot open throughout"`
}

// QueueResult has a cell for each combination.
type QueueResult struct {
	Cells []QueueCell `json:"cells"`
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

// DefaultQueue is measured unless flags say otherwise.
var DefaultQueue = QueueConfig{
	Ops: QueueOps, Batches: []int{1, 10, 100, 1000}, Workers: []int{1, 10, 50}, Jobs: 100_000, Longest: 2 * time.Second, Payload: 200,
}

// Validate refuses values that cannot be measured.
func (c *QueueConfig) Validate() error {
	for _, op := range c.Ops {
		if !slices.Contains(QueueOps, op) {
			return fmt.Errorf("%q cannot be measured, expected %v", op, QueueOps)
		}
	}
	return nil
}

// cells are all combinations.
func (c *QueueConfig) cells() (cells []QueueCell) {
	add := func(op string, batch, workers int, modes ...string) {
		for _, mode := range modes {
			cells = append(cells, QueueCell{Op: op, Mode: mode, Batch: batch, Workers: workers})
		}
	}
	onPlainTables := c.plain() != nil
	for _, op := range c.Ops {
		if onPlainTables && op != OpClaim && op != OpWork {
			continue // a function, or the same INSERT
		}
		switch op {
		case OpWork:
			var o work.Options
			o.SetDefaults()
			add(op, o.Batch, o.Concurrency, ModeCall)
		case OpBusiness:
			for _, workers := range c.Workers {
				add(op, 1, workers, ModeTx, ModePipelined)
			}
		default:
			for _, batch := range c.Batches {
				for _, workers := range c.Workers {
					add(op, batch, workers, ModeCall)
					if batch == 1 && !onPlainTables {
						add(op, batch, workers, ModeTx)
					}
					if op == OpClaim {
						add(op, batch, workers, ModeCarried)
					}
				}
			}
		}
	}
	return cells
}

// Queue measures how many jobs go in and out, cell by cell, each on a new queue
// and a new hand-written table. Every other cell begins with the latter.
func Queue(ctx context.Context, cfg QueueConfig) (result QueueResult, err error) {
	release, err := cfg.pinned(ctx, cfg.Pin)
	if err != nil {
		return result, err
	}
	defer release()
	if result.Cells = cfg.cells(); len(result.Cells) == 0 {
		return result, fmt.Errorf("on plain tables --ops can be %s and %s", OpClaim, OpWork)
	}
	quiet := cfg
	quiet.Progress = nil // the cell has said it
	for i := range result.Cells {
		c := &result.Cells[i]
		cfg.progress("%d of %d: %s, mode %s, batches of %d, %d workers", i+1, len(result.Cells), c.Op, c.Mode, c.Batch, c.Workers)
		if err := quiet.cell(ctx, c, i%2 == 1); err != nil {
			return result, err
		}
	}
	return result, nil
}

// cell compares the sides of one, in turns where that is quick.
func (cfg QueueConfig) cell(ctx context.Context, c *QueueCell, reverse bool) error {
	if c.Op == OpBusiness {
		return cfg.adding(ctx, c, business(cfg.Setup, c.Mode, c.Workers, cfg.Jobs))
	}
	ours, theirs := operations(cfg.Setup, c.Op, c.Mode, c.Batch)
	if ours.adds {
		return cfg.adding(ctx, c, []operation{ours, theirs})
	}
	all := []operation{ours, theirs}
	if c.Op != OpDequeue {
		all = append(all, leasedByHand(cfg.Setup, c.Mode))
	}
	turns := 1
	if c.Op == OpWork {
		turns, reverse = drainTurns, false
	}
	var sides []func() (float64, error)
	for i, op := range all {
		sides = append(sides, func() (float64, error) {
			if c.Op == OpWork {
				return cfg.drain(ctx, op.contender, i == 0)
			}
			return cfg.taking(ctx, op, c.Batch, c.Workers)
		})
	}
	if reverse {
		slices.Reverse(sides)
	}
	rates, err := inTurns(turns, sides...)
	if reverse {
		slices.Reverse(rates)
	}
	c.Penstock, c.Baseline, c.Ratio = median(rates[0]), median(rates[1]), median(ratios(rates[0], rates[1]))
	if len(all) > 2 {
		c.Leased, c.RatioLeased = median(rates[2]), median(ratios(rates[0], rates[2]))
	}
	return err
}

// taking measures an operation that takes, until all jobs are done or the time is up.
func (cfg QueueConfig) taking(ctx context.Context, op operation, batch, workers int) (perSecond float64, err error) {
	return perSecond, op.in(ctx, func(keeper *session) error {
		if err := op.fill(keeper, cfg.Jobs, cfg.payload()); err != nil {
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
		_, err := op.checked(keeper, int64(cfg.Jobs), w.done.Load(), 0)
		return err
	})
}

// adding measures what adds: ours, theirs, and perhaps the plain table's. Each comes ten times, and more often in a longer cell, so
// that whatever else the machine does meets all.
func (cfg QueueConfig) adding(ctx context.Context, c *QueueCell, operations []operation) error {
	turns := max(10, int(cfg.Longest/(200*time.Millisecond)))
	var sides []*cellWork
	defer func() {
		for _, w := range sides {
			w.close()
		}
	}()
	return allIn(ctx, operations, func(keeper *session) error {
		var runs []func() (float64, error)
		for _, op := range operations {
			w := &cellWork{operation: op, batch: c.Batch}
			sides = append(sides, w)
			if err := w.open(ctx, c.Workers, cfg.payload()); err != nil {
				return err
			}
			runs = append(runs, func() (float64, error) {
				return w.run(ctx, max(cfg.Jobs/turns, 1), cfg.Longest/time.Duration(turns))
			})
		}
		rates, err := inTurns(turns, runs...)
		if err != nil {
			return err
		}
		c.Penstock, c.Baseline, c.Ratio = median(rates[0]), median(rates[1]), median(ratios(rates[0], rates[1]))
		if len(sides) > 2 {
			c.Plain, c.RatioPlain = median(rates[2]), median(ratios(rates[2], rates[1]))
		}
		return wrongAfter(keeper, c.Op, sides)
	})
}

// allIn makes the tables of all, in their order, lets do have them, and removes them.
func allIn(ctx context.Context, operations []operation, do func(*session) error) error {
	return operations[0].in(ctx, func(s *session) error {
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
		if _, err := w.checked(s, want, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

func (cfg QueueConfig) payload() []byte { return bytes.Repeat([]byte("x"), cfg.Payload) }

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
	last  latest // when a job was done
}

// latest is the last moment of something that several goroutines do, in nanoseconds after their start.
type latest struct{ atomic.Int64 }

// note notes how long something took from the start, if nothing else took longer.
func (l *latest) note(took time.Duration) {
	for {
		if last := l.Load(); int64(took) <= last || l.CompareAndSwap(last, int64(took)) {
			return
		}
	}
}

func (l *latest) seconds() float64 { return time.Duration(l.Load()).Seconds() }

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
	before := w.done.Load()
	w.jobs = before + int64(jobs)
	w.last.Store(0)
	w.start = time.Now()
	w.until = w.start.Add(longest)
	err = together(ctx, len(w.sessions), func(ctx context.Context, i int) error {
		err := w.loop(ctx, w.sessions[i])
		if w.end != nil && err == nil {
			if err = w.end(w.sessions[i]); err == nil {
				w.last.note(time.Since(w.start))
			}
		}
		return err
	})
	return over(float64(w.done.Load()-before), w.last.seconds()), err
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
			w.last.note(now.Sub(w.start))
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
