package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/sink/webhook"
	"github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/work"
)

// worker runs a command, or sends a request, for each job of a queue.
type worker struct {
	*config.Worker
	queue     driver.Queue
	execution *execution
	seen      work.Observer
	log       *slog.Logger
	database  string
	version   string
	logger    *slog.Logger    // for work.Run, which adds the queue
	draining  context.Context // ends when no more jobs must be claimed
	drain     context.CancelFunc
}

// work adds a worker.
func (r *Relays) work(cfg *config.Worker) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("worker of queue %q: %w", cfg.Queue, err)
	}
	w := &worker{Worker: cfg, queue: r.store.DriverQueue(cfg.Queue), log: r.o.Log.With("queue", cfg.Queue), database: r.o.Database, version: r.o.Version, logger: r.o.Log, seen: r.o.Metrics.Worker(cfg.Queue, cfg.Kinds...)}
	w.Concurrency = cmp.Or(w.Concurrency, runtime.GOMAXPROCS(0))
	w.execution = &execution{queue: cfg.Queue, command: cfg.Exec, timeout: time.Duration(max(cfg.Timeout, 0)), giveBack: giver(w.queue), log: w.log}
	if cfg.HTTP != "" {
		c, err := cfg.Webhook()
		if err != nil {
			return err
		}
		sink, err := webhook.Open(c, w.log)
		if err != nil {
			return err
		}
		r.ends = append(r.ends, func() { _ = sink.Close(context.Background()) })
		w.execution.http, w.execution.timeout = sink, 0 // the request has the timeout
	}
	if cfg.Output != config.Discard {
		w.execution.stdout, w.execution.stderr = sharedWriter(r.o.Stdout), r.o.Stderr
	}
	w.draining, w.drain = context.WithCancel(context.Background())
	r.all = append(r.all, w)
	return nil
}

// Drain makes Run return once the running jobs have ended.
func (w *worker) Drain() { w.drain() }

// patience is how long a hurried worker tries to give back its jobs.
const patience = 10 * time.Second

// Run runs jobs until it is drained, or until ctx ends: then running commands are killed and their
// jobs given back.
func (w *worker) Run(ctx context.Context) error {
	defer w.drain()
	defer context.AfterFunc(ctx, w.drain)()
	// A queue that cannot be worked on is reported at the start. A database that is down, slow or full is waited
	// for.
	if err := w.queue.Maintain(w.draining); err != nil && w.draining.Err() == nil && !waitable(err) {
		return about.Queue(err, "working", w.Queue)
	}
	kinds := any("all")
	if len(w.Kinds) > 0 {
		kinds = w.Kinds
	}
	w.log.Info("working", "database", w.database, "kinds", kinds)
	w.execution.hurried = ctx
	if _, keeps := w.queue.(driver.Reporter); keeps && w.execution.http == nil {
		reports, err := os.MkdirTemp("", "penstock-reports-")
		if err != nil {
			w.log.Warn("commands cannot report: there is no folder for it", "err", err)
		}
		w.execution.reports = reports
		defer func() { _ = os.RemoveAll(reports) }()
	}
	ended := make(chan error, 1)
	go func() { ended <- w.work() }()
	select {
	case err := <-ended:
		return about.Queue(err, "working", w.Queue)
	case <-ctx.Done():
	}
	select {
	case <-ended:
	case <-time.After(patience):
		w.log.Warn("jobs that were killed could not be given back in time; they run again when their leases end")
	}
	return ctx.Err()
}

// work is work.Run, which ends if the queue was dropped. If the queue is created again, its jobs
// run again. The rest of this process continues meanwhile.
func (w *worker) work() error {
	for {
		err := work.Run(w.draining, w.queue, w.handler(), w.options())
		if w.draining.Err() != nil || !errors.Is(err, penstock.ErrNoQueue) {
			return err
		}
		w.log.Error("cannot work; trying again", "err", err, "in", dropped)
		select {
		case <-time.After(dropped):
		case <-w.draining.Done():
			return nil
		}
	}
}

// dropped is the pause between two tries to work on a missing queue.
const dropped = time.Second

// handler runs jobs, or those of the kinds that are named.
func (w *worker) handler() work.Handler {
	traced := trace.Worker(w.Queue)
	if len(w.Kinds) == 0 {
		return traced(w.execution.handle)
	}
	var mux work.Mux
	mux.Use(traced)
	for _, kind := range w.Kinds {
		mux.Handle(kind, w.execution.handle)
	}
	return mux.Handler()
}

func (w *worker) options() work.Options {
	o := work.Options{
		Concurrency: w.Concurrency, Lease: w.Lease, Groups: w.Groups, AllGroups: w.AllGroups, DrainTimeout: time.Duration(w.DrainTimeout),
		Observer: w.seen, Logger: w.logger,
	}
	if w.version != "" {
		o.Version = "penstock " + w.version
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = math.MaxInt64 // nothing runs for this long
	}
	return o
}

// giver returns a function that gives a job back as if it had not been claimed, or comes as close
// to that as the queue permits.
func giver(queue driver.Queue) func(ctx context.Context, job penstock.Job) error {
	if r, ok := queue.(driver.Releaser); ok {
		return func(ctx context.Context, job penstock.Job) error {
			_, err := r.Release(ctx, 0, job.Lease)
			return err
		}
	}
	return func(ctx context.Context, job penstock.Job) error {
		_, err := queue.Retry(ctx, job.Lease, 0, "the worker was stopped")
		return err
	}
}
