package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/clients/conformance"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// worker is a running worker.
type worker struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// call is a call of a handler.
type call struct {
	ctx     context.Context
	queue   string
	outcome chan *request
}

// step runs a step of the job that a handler has, within a transaction if the request names one.
func (p *program) step(r *request) (any, error) {
	c, err := open[*call](&p.calls, r.Call)
	if err != nil {
		return nil, err
	}
	var made conformance.Stepped
	fn := func(context.Context) (string, error) {
		made.Ran = true
		return r.Result, nil
	}
	if r.Tx == "" {
		made.Result, err = work.Step(c.ctx, r.Name, fn)
		return made, err
	}
	t, err := open[tx](&p.txs, r.Tx)
	if err == nil {
		made.Result, err = work.StepTx(c.ctx, t.reporter(c.queue), r.Name, fn)
	}
	return made, err
}

func (p *program) work(d *db, r *request) (name string) {
	o := work.Options{Concurrency: r.Parallel, Batch: r.Batch, Lease: ms(r.LeaseMS), Group: r.GroupKey, Groups: r.Groups, AllGroups: r.AllGroups, Worker: r.WorkerName, DrainTimeout: ms(r.DrainMS)}
	ctx, cancel := context.WithCancel(p.ctx)
	w := &worker{cancel: cancel, done: make(chan struct{})}
	name = p.keep(&p.workers, w)
	go func() {
		defer close(w.done)
		if r.WorkTx {
			h := func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
				given := p.keep(&p.txs, pgxTx{tx, d.Store})
				defer p.txs.Delete(given)
				return p.ask(ctx, name, r.Queue, given, job)
			}
			if len(r.Kinds) > 0 {
				var mux work.TxMux[pgx.Tx]
				for _, kind := range r.Kinds {
					mux.Handle(kind, h)
				}
				h = mux.Handler()
			}
			w.err = postgres.WorkTx(ctx, d.Store, r.Queue, h, o)
			return
		}
		h := func(ctx context.Context, job penstock.Job) error { return p.ask(ctx, name, r.Queue, "", job) }
		if len(r.Kinds) > 0 {
			var mux work.Mux
			for _, kind := range r.Kinds {
				mux.Handle(kind, h)
			}
			h = mux.Handler()
		}
		w.err = work.Run(ctx, d.Queue(r.Queue), h, o)
	}()
	return name
}

// ask is the handler. The harness decides how the job ends.
func (p *program) ask(ctx context.Context, worker, queue, tx string, job penstock.Job) error {
	outcome := make(chan *request, 1)
	call := p.keep(&p.calls, &call{ctx, queue, outcome})
	wire := conformance.OfJob(job)
	p.write(conformance.Event{Event: "job", Worker: worker, Call: call, Tx: tx, Job: &wire})
	select {
	case r := <-outcome:
		return r.end()
	case <-ctx.Done():
		p.calls.Delete(call)
		cause := "stopping"
		switch {
		case errors.Is(context.Cause(ctx), penstock.ErrLeaseLost):
			cause = "lease_lost"
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			cause = "timeout"
		}
		p.write(conformance.Event{Event: "aborted", Worker: worker, Call: call, Cause: cause})
		return ctx.Err()
	}
}

// end is the result of the handler.
func (r *request) end() error {
	reason := errors.New(r.Reason)
	switch r.Outcome {
	case "done":
		return nil
	case "retry":
		return penstock.RetryAfter(reason, r.after(0))
	case "snooze":
		return work.Snooze(r.after(0))
	case "dead_letter":
		return penstock.Permanent(reason)
	case "cancelled":
		return work.ErrCancelled
	case "unreadable":
		var none *conformance.Error
		return none
	}
	return reason
}
