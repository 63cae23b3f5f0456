package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/work"
)

// SteadyConfig is one run of steady.
type SteadyConfig struct {
	Setup
	Rate        int           `help:"jobs per second" range:"1.."`
	Duration    time.Duration `help:"how long"`
	Concurrency int           `help:"handlers at a time" range:"1.."`
	Payload     int           `help:"bytes of each payload" range:"20..67108864"`
}

// SteadyResult is the work of Go workers.
type SteadyResult struct {
	// Enqueued per second: less than the rate if the producer was busy.
	Enqueued float64 `json:"enqueued_per_second"`
	// LatencyMS is from the commit's answer to the handler's start.
	LatencyMS *Latency `json:"latency_ms"`
	// CPUSecondsPer100k of the whole machine per 100,000 jobs, with the producer, the
	// database and whatever else runs; absent where /proc/stat is.
	CPUSecondsPer100k *float64 `json:"machine_cpu_seconds_per_100k,omitempty"`
	// NotIdleSecondsPer100k is the same by the time that the cores were not idle: exact where
	// the other counts ticks, but with what it takes to fall asleep and to wake.
	NotIdleSecondsPer100k *float64 `json:"machine_not_idle_seconds_per_100k,omitempty"`
	CPU                   CPU      `json:"cpu"`
	// ByHand is the same with the hand-written table and one connection that takes up to a hundred jobs again and again.
	ByHand *SteadyResult `json:"by_hand,omitempty"`
	// Intervals are of the run, by the time of the commit.
	Intervals []Interval `json:"intervals"`
}

// Lines are the curves of both queues.
func (r SteadyResult) Lines() []Line {
	return []Line{{"work.Run", r.Intervals}, {"by hand", r.ByHand.Intervals}}
}

// DefaultSteady is measured unless flags say otherwise.
var DefaultSteady = SteadyConfig{Rate: 2_000, Duration: 30 * time.Second, Concurrency: 10, Payload: 200}

// Validate refuses values that cannot be measured.
func (c *SteadyConfig) Validate() error {
	if c.Duration.Seconds()*float64(c.Rate) < 10 {
		return errors.New("it takes at least 10 jobs in all")
	}
	return nil
}

// Steady enqueues one job per transaction at a steady rate, and times each
// until work.Run hands it to its handler.
//
// Meanwhile the process has one processor (GOMAXPROCS), which producer and workers use to a third
// or so. With more, the scheduler wakes another thread at every timer and every answer to look for
// work that is not there, which costs as much CPU as an INSERT.
func Steady(ctx context.Context, cfg SteadyConfig) (result SteadyResult, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var o work.Options
	o.SetDefaults()
	ours, plain := ownQueue(cfg.Setup, "_steady", penstock.FIFO), plainQueue(cfg.Setup, "_plain")
	result.ByHand = &SteadyResult{}
	// The loop that a program without a library has, with work.Run's shortest pause when there was nothing.
	if err := cfg.compared(ctx, plain, func(ctx context.Context, handle func(payload []byte)) error {
		return plain.loop(ctx, o.PollMin, handle)
	}, result.ByHand); err != nil {
		return result, err
	}
	return result, cfg.compared(ctx, ours, func(ctx context.Context, handle func(payload []byte)) error {
		return work.Run(ctx, cfg.Store.(driver.QueueStore).DriverQueue(cfg.Name+"_steady"), func(_ context.Context, job penstock.Job) error {
			handle(job.Payload)
			return nil
		}, work.Options{Concurrency: cfg.Concurrency, Worker: "bench"})
	}, &result)
}

// workers call handle with the payload of each job, until ctx ends.
type workers func(ctx context.Context, handle func(payload []byte)) error

// compared measures one of the two queues.
func (cfg SteadyConfig) compared(ctx context.Context, c contender, workers workers, result *SteadyResult) error {
	return c.in(ctx, func(keeper *session) error {
		if err := cfg.steady(ctx, c, workers, result); err != nil {
			return err
		}
		_, err := c.checked(keeper, int64(result.LatencyMS.Messages), int64(result.LatencyMS.Messages), 0)
		return err
	})
}

func (cfg SteadyConfig) steady(ctx context.Context, c contender, workers workers, result *SteadyResult) (err error) {
	total := int(cfg.Duration.Seconds() * float64(cfg.Rate))
	t := newTiming(total)
	producer, err := c.connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting the producer: %w", err)
	}
	defer producer.close()
	if err := producer.prepare(c.sql, "enqueue"); err != nil {
		return err
	}
	workCtx, stop := context.WithCancel(ctx)
	var handled atomic.Int64
	all, worked := make(chan struct{}), make(chan error, 1)
	go func() {
		worked <- workers(workCtx, func(payload []byte) {
			t.arrive(payload)
			if handled.Add(1) == int64(total) {
				close(all)
			}
		})
	}()
	c.progress("%s: %d jobs/s for %s", c.label, cfg.Rate, cfg.Duration)
	cpu, idle, measured := machineCPU()
	watch, numbered := startCPU(), load{payload: cfg.Payload}
	err = steadily(ctx, 1, cfg.Rate, func(i int) (more bool, err error) {
		if i >= total {
			return false, nil
		}
		_, err = producer.run("enqueue", numbered.messages(i, 1)[0].Payload)
		t.commit(i)
		return true, err
	})
	result.Enqueued = float64(total) / time.Since(watch.at).Seconds()
	if err == nil {
		err = awaitProgress(ctx, all, handled.Load, func(n int64) error { return fmt.Errorf("no job was handled for %s, after %d", patience, n) })
	}
	result.CPU = watch.stop()
	after, idleAfter, _ := machineCPU()
	took := time.Since(watch.at)
	stop()
	if err := errors.Join(err, <-worked); err != nil {
		return err
	}
	if measured {
		per100k := func(cpu time.Duration) *float64 { return new(cpu.Seconds() / float64(total) * 100_000) }
		result.CPUSecondsPer100k = per100k(after - cpu)
		result.NotIdleSecondsPer100k = per100k(time.Duration(result.CPU.Cores)*took - (idleAfter - idle))
	}
	result.Intervals = t.intervals(watch.at, intervals)
	result.LatencyMS, err = t.result("handler")
	return err
}
