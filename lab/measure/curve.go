package measure

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/test/rocksdb"
)

// warmUpFor is left out of the first tenth: connections are new and caches cold.
const warmUpFor = time.Second

// dequeuing is one contender at work.
type dequeuing struct {
	contender
	cfg      FifoLifoConfig
	interval time.Duration
	times    *timeline

	in, out, empty atomic.Int64
	ended          atomic.Bool
	drained        atomic.Bool
	at             atomic.Int64 // nanoseconds after the start, when it had ended
	turn           atomic.Int64 // of the dequeuers, where they have a rate

	mu    sync.Mutex
	got   *idSet
	sizes []int64        // at the end of each interval
	calls []*CallsPerJob // by interval, as sizes
	files map[int64]bool
	cpu   CPU
}

// measure runs the workload on one contender.
func (cfg FifoLifoConfig) measure(ctx context.Context, c contender) (curve Curve, err error) {
	slice := cfg.Duration / intervals / 10
	d := &dequeuing{contender: c, cfg: cfg, interval: 10 * slice, times: newTimeline(cfg.Duration, slice), got: newIDSet(), files: map[int64]bool{}}
	payload := bytes.Repeat([]byte("x"), cfg.Payload)
	err = c.in(ctx, func(s *session) error {
		if err := c.fill(s, cfg.Preload, payload); err != nil {
			return err
		}
		d.in.Store(int64(cfg.Preload))
		size, err := d.look(s)
		if err != nil {
			return err
		}
		segments := len(d.files)
		calls, err := d.callsSince(ctx, rocksdb.Calls{})
		if err != nil {
			return err
		}
		c.progress("%s: %d workers dequeue for %s", c.label, cfg.Workers, cfg.Duration)
		err = d.run(ctx, s, payload)
		if d.at.Load() > 0 { // what was measured until it was interrupted
			curve = d.curve()
			curve.SizeAtStart = size
		}
		if err != nil {
			return err
		}
		if calls, err = d.callsSince(ctx, calls); err != nil {
			return err
		}
		curve.RocksDB = perJob(calls, curve.Dequeued)
		if curve.SizeAtEnd, err = d.look(s); err != nil {
			return err
		}
		if n := len(curve.Intervals); n > len(d.sizes) {
			curve.Intervals[n-1].SizeBytes = curve.SizeAtEnd
		}
		curve.SegmentsTruncated = len(d.files) - segments
		curve.SizePeak = max(size, curve.SizeAtEnd, slices.Max(append(d.sizes, 0)))
		curve.Left, err = c.checked(s, curve.Enqueued, curve.Dequeued, d.got.twice)
		return err
	})
	return curve, err
}

// run starts everything at once and waits for its end.
func (d *dequeuing) run(ctx context.Context, keeper *session, payload []byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sessions []*session
	defer func() {
		for _, s := range sessions {
			s.close()
		}
	}()
	open := func(prepared ...string) (*session, error) {
		s, err := d.connect(ctx)
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
		return s, s.prepare(d.sql, prepared...)
	}
	tasks := []func(context.Context) error{func(ctx context.Context) error { return d.keep(ctx, keeper) }}
	for range d.cfg.Workers {
		s, err := open(d.prepared...)
		if err != nil {
			return fmt.Errorf("connecting the workers: %w", err)
		}
		if err := d.warm(s); err != nil {
			return err
		}
		tasks = append(tasks, func(ctx context.Context) error { return d.work(ctx, s) })
	}
	if d.cfg.Arrivals {
		s, err := open("enqueue")
		if err != nil {
			return err
		}
		tasks = append(tasks, func(ctx context.Context) error { return d.arrive(ctx, s, payload) })
	}
	cpu := startCPU()
	d.times.start = cpu.at
	err := together(ctx, len(tasks), func(ctx context.Context, i int) error {
		err := tasks[i](ctx)
		if err != nil {
			d.end(false)
			cancel(err) // ends what the others' sessions wait for
		}
		return err
	})
	d.cpu = cpu.stop()
	return err
}

// end of the run, at the latest when its time is up.
func (d *dequeuing) end(drained bool) {
	if d.ended.CompareAndSwap(false, true) {
		d.at.Store(int64(min(time.Since(d.times.start), d.cfg.Duration)))
		d.drained.Store(drained)
	}
}

func (d *dequeuing) over() bool {
	if time.Since(d.times.start) >= d.cfg.Duration {
		d.end(false)
	}
	return d.ended.Load()
}

// work is one dequeuer. The time of a job is that of its whole transaction.
func (d *dequeuing) work(ctx context.Context, s *session) error {
	got := newIDSet()
	last := time.Now()
	for !d.over() {
		if err := d.await(ctx); err != nil {
			return err
		}
		start := time.Now()
		id, ok, err := d.take(s)
		if err != nil {
			return err
		}
		now := time.Now()
		if ok {
			last = now
			d.out.Add(1)
			got.add(id)
			d.times.note(now, now.Sub(start))
			continue
		}
		if d.out.Load() >= d.in.Load() {
			d.end(true) // a poll of an empty queue measures nothing
			break
		}
		d.empty.Add(1)
		if now.Sub(last) > patience {
			return fmt.Errorf("%s: a worker has found nothing for %s, though %d jobs are there", d.label, patience, d.in.Load()-d.out.Load())
		}
		if err := sleepUntil(ctx, now.Add(time.Millisecond)); err != nil { // others have locked the remaining jobs
			return err
		}
	}
	if d.contender.end != nil {
		if err := d.contender.end(s); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got.merge(got)
	return nil
}

// await waits for this dequeuer's turn, if there is a rate.
func (d *dequeuing) await(ctx context.Context) error {
	if d.cfg.DequeueRate == 0 {
		return nil
	}
	n := d.turn.Add(1) - 1
	return sleepUntil(ctx, d.times.start.Add(time.Duration(n)*time.Second/time.Duration(d.cfg.DequeueRate)))
}

// arrive is the enqueuer: one job per transaction.
func (d *dequeuing) arrive(ctx context.Context, s *session, payload []byte) error {
	one := func(int) (bool, error) {
		if d.over() {
			return false, nil
		}
		if _, err := s.run("enqueue", payload); err != nil {
			return false, err
		}
		d.in.Add(1)
		return true, nil
	}
	if d.cfg.Rate > 0 {
		return steadily(ctx, 1, d.cfg.Rate, one)
	}
	for {
		if more, err := one(0); err != nil || !more {
			return err
		}
	}
}

// keepEvery is how often workers maintain their queue.
const keepEvery = 500 * time.Millisecond

// keep maintains the queue, as workers do, and looks at its size when an interval
// ends.
func (d *dequeuing) keep(ctx context.Context, s *session) error {
	maintained, before := d.times.start, int64(0)
	last, err := d.callsSince(ctx, rocksdb.Calls{})
	if err != nil {
		return err
	}
	for !d.over() {
		ends := d.times.start.Add(time.Duration(len(d.sizes)+1) * d.interval)
		maintains := maintained.Add(keepEvery)
		// In short steps: a queue that is empty ends the run early.
		if err := sleepUntil(ctx, time.Now().Add(min(time.Until(ends), time.Until(maintains), 50*time.Millisecond))); err != nil {
			return err
		}
		now := time.Now()
		if !now.Before(maintains) {
			maintained = now
			if err := d.maintain(s); err != nil {
				return err
			}
		}
		if !now.Before(ends) {
			size, err := d.look(s)
			if err != nil {
				return err
			}
			d.sizes = append(d.sizes, size)
			calls, err := d.callsSince(ctx, last)
			if err != nil {
				return err
			}
			out := d.out.Load()
			d.calls = append(d.calls, perJob(calls, out-before))
			last, before = last.Plus(calls), out
		}
	}
	return nil
}

// look reads the size, and which files there are.
func (d *dequeuing) look(s *session) (size int64, err error) {
	if err := s.value("reading the size", d.sql["size"], &size); err != nil {
		return 0, err
	}
	if sql := d.sql["files"]; sql != "" {
		var files []int64
		if err := s.value("reading the segments", sql, &files); err != nil {
			return 0, err
		}
		for _, file := range files {
			d.files[file] = true
		}
	}
	return size, nil
}

// callsSince are RocksDB's calls since the given counts.
func (d *dequeuing) callsSince(ctx context.Context, before rocksdb.Calls) (rocksdb.Calls, error) {
	c, err := d.Setup.calls(ctx)
	return c.Since(before), err
}

// curve puts the notes together.
func (d *dequeuing) curve() Curve {
	end := time.Duration(d.at.Load())
	c := Curve{
		Seconds: end.Seconds(), Drained: d.drained.Load(),
		Enqueued: d.in.Load(), Dequeued: d.out.Load(), EmptyPolls: d.empty.Load(), CPU: d.cpu,
	}
	for from := time.Duration(0); from < end; from += d.interval {
		to := min(from+d.interval, end)
		// The slice in which the run ended is whole in the last interval.
		h := d.times.between(from, min(from+d.interval, end+d.times.slice-1))
		i := h.interval(to, float64(h.TotalCount())/(to-from).Seconds())
		if at := len(c.Intervals); at < len(d.sizes) {
			i.SizeBytes, i.RocksDB = d.sizes[at], d.calls[at]
		}
		c.Intervals = append(c.Intervals, i)
	}
	all := d.times.between(0, end+d.times.slice-1)
	c.JobsPerSecond = float64(all.TotalCount()) / end.Seconds()
	warm := min(warmUpFor, end/4)
	tenth := (end - warm) / 10
	first, last := d.times.between(warm, warm+tenth), d.times.between(end-tenth, end+d.times.slice-1)
	c.FirstAndLast = firstAndLast(first, last)
	c.Flatness = over(c.LastP99MS, c.FirstP99MS)
	return c
}
