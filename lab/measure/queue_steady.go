package measure

import (
	"cmp"
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

// SteadyQueueConfig is one run at a steady rate.
type SteadyQueueConfig struct {
	Database
	// Store is on the same database and schema.
	Store driver.QueueStore

	Rate         int           // jobs/s; default 2,000
	For          time.Duration // default 30 s
	Writers      int           // connections that share the rate; default 1
	Concurrency  int           // handlers at a time; default 10
	PayloadBytes int           // default 200
}

// SteadyQueueResult is the work of Go workers.
type SteadyQueueResult struct {
	Rate int `json:"rate"`
	// Enqueued per second: less than Rate if all writers were busy.
	Enqueued    float64 `json:"enqueued_per_second"`
	Concurrency int     `json:"concurrency"`
	// LatencyMS is from the commit's answer to the handler's start.
	LatencyMS *Latency `json:"latency_ms"`
	// CPUSecondsPer100k of the whole machine per 100,000 jobs, with the producers, the
	// database and whatever else runs; absent where /proc/stat is.
	CPUSecondsPer100k *float64 `json:"machine_cpu_seconds_per_100k,omitempty"`
	// NotIdleSecondsPer100k is the same by the time that the cores were not idle: exact where
	// the other counts ticks, but with what it takes to fall asleep and to wake.
	NotIdleSecondsPer100k *float64 `json:"machine_not_idle_seconds_per_100k,omitempty"`
	// ProducersCPUSecondsPer100k is what the machine used just before for the same producers,
	// with a hand-written table instead of the queue and no workers: no queue has less.
	ProducersCPUSecondsPer100k *float64 `json:"producers_cpu_seconds_per_100k,omitempty"`
	CPU                        CPU      `json:"cpu"`
	// ByHand is the same with the hand-written table and one connection that takes up to a hundred jobs again and again.
	ByHand *SteadyQueueResult `json:"by_hand,omitempty"`
	// Intervals are twentieths of the run, by the time of the commit.
	Intervals []SteadyInterval `json:"intervals"`
}

// SteadyInterval of a run at a steady rate.
type SteadyInterval struct {
	At            float64 `json:"at_s"` // when it ended
	JobsPerSecond float64 `json:"jobs_per_second"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
}

// SetDefaults fills in the unset fields.
func (c *SteadyQueueConfig) SetDefaults() {
	c.Rate = cmp.Or(c.Rate, 2_000)
	c.For = cmp.Or(c.For, 30*time.Second)
	c.Writers = cmp.Or(c.Writers, 1)
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.PayloadBytes = cmp.Or(c.PayloadBytes, 200)
}

// Validate refuses values that cannot be measured.
func (c SteadyQueueConfig) Validate() error {
	c.SetDefaults()
	if c.Rate < 1 || c.Writers < 1 || c.Concurrency < 1 || c.For.Seconds()*float64(c.Rate) < 10 {
		return errors.New("it takes a rate, a writer and a handler, and at least 10 jobs in all")
	}
	return validNumbered(c.PayloadBytes)
}

// SteadyQueue enqueues one job per transaction at a steady rate, and times each
// until work.Run hands it to its handler.
//
// Meanwhile the process has one processor (GOMAXPROCS), which producers and workers use to a third
// or so. With more, the scheduler wakes another thread at every timer and every answer to look for
// work that is not there, which costs as much CPU as an INSERT.
func SteadyQueue(ctx context.Context, cfg SteadyQueueConfig) (result SteadyQueueResult, err error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return result, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	result.Rate, result.Concurrency = cfg.Rate, cfg.Concurrency
	if result.ProducersCPUSecondsPer100k, err = cfg.floor(ctx); err != nil {
		return result, err
	}
	words := cfg.words(cfg.Name + "_steady")
	words["order"] = literal(string(penstock.FIFO))
	c := contender{Database: cfg.Database, label: "Penstock", sql: readSQL("penstock", words)}
	plain := contender{Database: cfg.Database, label: "the hand-written queue", sql: readSQL("plainqueue", cfg.words(cfg.Name+"_plain"))}
	result.ByHand = &SteadyQueueResult{Rate: cfg.Rate, Concurrency: 1}
	if err := cfg.compared(ctx, plain, cfg.byHand(plain), result.ByHand); err != nil {
		return result, err
	}
	return result, cfg.compared(ctx, c, cfg.engine, &result)
}

// workers call handle with the payload of each job, until ctx ends.
type workers func(ctx context.Context, handle func(payload []byte)) error

// engine is work.Run.
func (cfg SteadyQueueConfig) engine(ctx context.Context, handle func(payload []byte)) error {
	return work.Run(ctx, cfg.Store.DriverQueue(cfg.Name+"_steady"), func(_ context.Context, job penstock.Job) error {
		handle(job.Payload)
		return nil
	}, work.Options{Concurrency: cfg.Concurrency, Worker: "bench"})
}

// byHand is the loop that a program without a library has, with work.Run's shortest pause when there was nothing.
func (cfg SteadyQueueConfig) byHand(c contender) workers {
	var o work.Options
	o.SetDefaults()
	return func(ctx context.Context, handle func(payload []byte)) error {
		return c.loop(ctx, o.PollMin, handle)
	}
}

// compared measures one of the two queues.
func (cfg SteadyQueueConfig) compared(ctx context.Context, c contender, workers workers, result *SteadyQueueResult) error {
	return c.in(ctx, func(keeper *session) error {
		if err := cfg.steady(ctx, c, workers, result); err != nil {
			return err
		}
		left, err := c.rest(keeper)
		if err != nil {
			return err
		}
		return c.wrong(int64(result.LatencyMS.Messages), int64(result.LatencyMS.Messages), left, 0)
	})
}

func (cfg SteadyQueueConfig) steady(ctx context.Context, c contender, workers workers, result *SteadyQueueResult) (err error) {
	total := int(cfg.For.Seconds() * float64(cfg.Rate))
	t := &timing{committed: make([]time.Time, total), arrived: make([]time.Time, total)}
	p, err := cfg.producers(ctx, c)
	if err != nil {
		return err
	}
	defer p.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
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
	ended := func() error { // of the workers, before or after stop
		stop()
		return <-worked
	}
	c.progress("%s: %d jobs/s for %s", c.label, cfg.Rate, cfg.For)
	cpu, idle, measured := machineCPU()
	watch, start := startCPU(), time.Now()
	err = p.produce(ctx, total, t.commit)
	if err != nil {
		return errors.Join(err, ended())
	}
	result.Enqueued = float64(total) / time.Since(start).Seconds()
	if err := awaitHandled(ctx, all, &handled); err != nil {
		return errors.Join(err, ended())
	}
	result.CPU = watch.stop()
	after, idleAfter, _ := machineCPU()
	took := time.Since(start)
	if err := ended(); err != nil {
		return err
	}
	if measured {
		result.CPUSecondsPer100k = per100k(after-cpu, total)
		result.NotIdleSecondsPer100k = per100k(time.Duration(result.CPU.Cores)*took-(idleAfter-idle), total)
	}
	result.Intervals = t.intervals(start, 20)
	result.LatencyMS, err = t.result("handler")
	return err
}

// awaitHandled gives up when no job has been handled for as long as patience.
func awaitHandled(ctx context.Context, all <-chan struct{}, handled *atomic.Int64) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, changed := handled.Load(), time.Now()
	for {
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			if n := handled.Load(); n != last {
				last, changed = n, now
			} else if now.Sub(changed) > patience {
				return fmt.Errorf("no job was handled for %s, after %d", patience, n)
			}
		}
	}
}
