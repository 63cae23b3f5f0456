// Package demo is Penstock's main job on real data: an airline whose every
// departure is a business transaction that publishes a message.
//
//	transaction per flight:   insert the flight, count it for its aircraft,
//	                          publish flight.departed (key = tail number)
//	relay:                    outbox → sink → broker
//	consumer:                 reads the broker with the broker's own client
//	check:                    arrivals against the airline's commits
//
// The ground truth is the airline's flights table and not the outbox. Its counter is taken under
// the aircraft's row lock. So it is the order in which the transactions of one aircraft could have
// seen each other. The consumer uses none of the sink's code, so an error in the sink shows.
package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/relay"
)

// Config of a run.
type Config struct {
	Flights []Flight
	// DatabaseURL is postgres://…, mysql://… or sqlite:FILE. Empty means a private SQLite file.
	DatabaseURL string
	// Schema of Penstock's tables. If it is empty, PostgreSQL gets a schema and MySQL a database for the run.
	Schema string
	// Sink is the URL of the sink. Default embedded.
	Sink string
	// Producers, Rollback and Seed are those of Produce.
	Producers int
	Rollback  float64
	Seed      uint64
	// Keep leaves tables, queues and files where they are.
	Keep bool
	// Patience is how long to wait if nothing is delivered.
	Patience time.Duration
	// Log of the store, the sink and the relay.
	Log *slog.Logger
	// Rate is how many transactions begin each second; 0 means as many as possible.
	Rate float64
	// Opened, if set, is called when the database at a URL is ready for the run, and Finished before it is removed.
	Opened   func(ctx context.Context, url, schema string) error
	Finished func(ctx context.Context, result *Result)
	// Metrics, if set, are updated by the relay.
	Metrics *metrics.Metrics
	// Progress, if set, is called about ten times a second by one goroutine.
	Progress func(Progress)
}

// run is one run, with everything that it has opened.
type run struct {
	Config
	name    string // of everything that the run creates
	dir     string // its temporary directory
	outbox  string
	store   driver.Store
	airline Airline
	sink    driver.Sink
	broker  readback.Broker

	produce  Produce
	arrivals []Arrival
	arrived  atomic.Int64
	counters *relay.Counters
	observer relay.Observer
	undo     []undo
}

// undo is a step of cleaning up. The steps are done in reverse order.
type undo struct {
	step func(context.Context) error
	keep string // the objects that the step would remove, if Keep skips it
}

// Run runs the demo. The error is the reason why it did not finish; the findings of the check are in
// the Result.
func Run(ctx context.Context, cfg Config) (result Result, err error) {
	r := &run{Config: cfg, name: "penstock_demo_" + randomName()}
	r.produce = Produce{Flights: cfg.Flights, Producers: cfg.Producers, Rollback: cfg.Rollback, Seed: cfg.Seed, Rate: cfg.Rate}
	if r.Sink == "" {
		r.Sink = "embedded"
	}
	if r.Patience <= 0 {
		r.Patience = time.Minute
	}
	defer func() {
		kept, cleanErr := r.cleanUp(ctx)
		result.Kept = kept
		switch {
		case cleanErr == nil:
		case err == nil:
			err = fmt.Errorf("the run is done, but cleaning up failed: %w", cleanErr)
		default: // the first error stays
			r.Log.Error("cleaning up failed", "err", cleanErr)
		}
	}()
	if err := r.open(ctx); err != nil {
		return Result{}, err
	}
	r.observe()
	if r.Opened != nil {
		if err := r.Opened(ctx, r.DatabaseURL, r.Schema); err != nil {
			return Result{}, err
		}
	}
	if result, err = r.run(ctx); err == nil && r.Finished != nil {
		r.Finished(ctx, &result)
	}
	return result, err
}

func (r *run) observe() {
	if r.Metrics == nil {
		r.counters = &relay.Counters{}
		r.observer = r.counters
		return
	}
	o := r.Metrics.Relay(r.outbox, "demo")
	r.counters, r.observer = &o.Counters, o
}

func randomName() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (r *run) later(keep string, step func(context.Context) error) {
	r.undo = append(r.undo, undo{step, keep})
}

// open creates everything that the run needs, each with a step that undoes it.
func (r *run) open(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "penstock-demo-"); err != nil {
		return fmt.Errorf("making a temporary directory: %w", err)
	}
	r.later(r.dir, func(context.Context) error { return os.RemoveAll(r.dir) })

	if err := r.openDatabase(ctx); err != nil {
		return err
	}
	return r.openBroker(ctx)
}

func (r *run) openBroker(ctx context.Context) (err error) {
	if r.broker, err = drivers.ReadBack(r.Sink, r.dir, r.name); err != nil {
		return err
	}
	sinkURL := r.Sink
	if r.broker != nil {
		sinkURL = r.broker.SinkURL()
	}
	driver, err := drivers.ParseSink(sinkURL)
	if err != nil {
		return err
	}
	if r.sink, err = driver.Open(r.Log); err != nil {
		return fmt.Errorf("opening the sink: %w", err)
	}
	r.later("", r.sink.Close)
	if r.broker == nil {
		return nil
	}
	r.later("", func(context.Context) error { return r.broker.Close() })
	if err := r.broker.Open(ctx, r.sink); err != nil {
		return err
	}
	r.later("the queue or stream "+r.name, r.broker.Remove)
	return nil
}

func (r *run) cleanUp(ctx context.Context) (kept []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var errs []error
	for i := len(r.undo) - 1; i >= 0; i-- {
		u := r.undo[i]
		if r.Keep && u.keep != "" {
			kept = append(kept, u.keep)
			continue
		}
		errs = append(errs, u.step(ctx))
	}
	return kept, errors.Join(errs...)
}

// impatient is a store with which a relay that cannot begin ends the run, for example through a pooler. Otherwise the relay
// would retry, and nothing would be delivered.
type impatient struct {
	driver.Store
	fail  context.CancelCauseFunc
	begun bool
}

func (i *impatient) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	source, err := i.Store.Subscribe(ctx, req)
	if err != nil && !i.begun {
		i.fail(fmt.Errorf("the relay cannot begin: %w", err))
	}
	i.begun = i.begun || err == nil
	return source, err
}

// run runs relay, consumer and producers until everything is delivered.
func (r *run) run(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	pump, err := relay.New(&impatient{Store: r.store, fail: cancel}, r.outbox, "demo", r.sink, relay.Options{Holder: r.name, Logger: r.Log, Observer: r.observer})
	if err != nil {
		return Result{}, err
	}
	commits, err := r.produce.Commits(ctx, r.airline)
	if err != nil {
		return Result{}, err
	}
	relayed := background(func() error { return pump.Run(ctx) }, cancel)
	read := background(func() error { return r.read(ctx) }, cancel)

	start := time.Now()
	stopShowing := r.showProgress(start)
	defer stopShowing()

	err = r.produce.Run(ctx, r.airline)
	writing := time.Since(start)
	gaveUp := false
	if err == nil {
		gaveUp, err = r.waitForRelay(ctx)
	}
	pump.Drain()
	err = errors.Join(err, <-relayed)
	if err == nil && r.broker != nil {
		err = r.broker.Finish(ctx)
	}
	if err != nil {
		cancel(err)
	}
	if readErr := <-read; err == nil {
		err = readErr
	}
	elapsed := time.Since(start)
	if err != nil {
		return Result{}, firstCause(ctx, err)
	}
	committed, err := r.airline.Committed(ctx)
	if err != nil {
		return Result{}, err
	}
	_, rolledBack := r.produce.Counts()
	result := Result{RolledBack: int(rolledBack), GaveUp: gaveUp, Elapsed: elapsed, Writing: writing, Rate: r.Rate, CommitsPerSecond: commits}
	if r.broker == nil {
		result.Unread = true
		result.Checked = Checked{Published: len(committed), Delivered: int(r.counters.Delivered.Load())}
		return result, nil
	}
	result.Checked = Check(committed, r.arrivals)
	return result, nil
}

// read collects the consumer's messages.
func (r *run) read(ctx context.Context) error {
	if r.broker == nil {
		return nil
	}
	return r.broker.Read(ctx, func(got readback.Arrival) {
		a := ParseArrival(got.Key, got.Payload)
		r.arrivals = append(r.arrivals, a)
		r.arrived.Add(1)
	})
}

// background runs fn and reports its error; an error also ends the run.
func background(fn func() error, cancel context.CancelCauseFunc) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := fn()
		if err != nil {
			cancel(err)
		}
		done <- err
	}()
	return done
}

// firstCause is the first error, rather than its consequences.
func firstCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// waitForRelay returns when nothing is left to relay. It returns true if nothing has moved for too
// long.
func (r *run) waitForRelay(ctx context.Context) (gaveUp bool, err error) {
	last, lastMove := int64(-1), time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		backlog, err := r.backlog(ctx)
		if err != nil {
			return false, err
		}
		moved := backlog + r.counters.Delivered.Load()<<32 // changes with either
		switch {
		case backlog == 0:
			return false, nil
		case moved != last:
			last, lastMove = moved, time.Now()
		case time.Since(lastMove) > r.Patience:
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}

func (r *run) backlog(ctx context.Context) (int64, error) {
	outboxes, err := r.store.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the backlog: %w", err)
	}
	for _, o := range outboxes {
		if o.Outbox == r.outbox && len(o.Subscriptions) > 0 {
			return o.Subscriptions[0].Backlog, nil
		}
	}
	return -1, nil // the relay has not subscribed yet
}

// showProgress calls Progress until the returned function is called.
func (r *run) showProgress(start time.Time) (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	show := func() {
		committed, rolledBack := r.produce.Counts()
		delivered := r.arrived.Load()
		if r.broker == nil {
			delivered = r.counters.Delivered.Load()
		}
		r.Progress(Progress{
			Total: int64(len(r.Flights)), Committed: committed, RolledBack: rolledBack,
			Delivered: delivered, Elapsed: time.Since(start),
		})
	}
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show()
			case <-quit:
				show()
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-stopped
	}
}

// Produce is a run of business transactions.
type Produce struct {
	Flights []Flight
	// Producers commit concurrently; the flights of one aircraft stay with one
	// of them, in the order of the data.
	Producers int
	// Rollback is the share of transactions that publish and then roll back. Seed decides which.
	Rollback float64
	Seed     uint64
	// Rate is how many transactions all producers together begin each second; 0 means as many as
	// possible.
	Rate float64

	committed, rolledBack atomic.Int64
}

// Counts returns how many transactions were committed and rolled back so far.
func (p *Produce) Counts() (committed, rolledBack int64) {
	return p.committed.Load(), p.rolledBack.Load()
}

// Commits measures for a while how many nearly empty transactions the same number of producers commit per second.
func (p *Produce) Commits(ctx context.Context, airline Airline) (float64, error) {
	const while = 300 * time.Millisecond
	var done atomic.Int64
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range max(p.Producers, 1) {
		group.Go(func() error {
			for time.Since(start) < while {
				if err := airline.Commit(ctx); err != nil {
					return fmt.Errorf("a transaction with next to nothing in it: %w", err)
				}
				done.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(done.Load()) / time.Since(start).Seconds(), err
}

// Run runs the transaction of every flight. It stops at the first error.
func (p *Produce) Run(ctx context.Context, airline Airline) error {
	shares := make([][]*Flight, max(p.Producers, 1))
	for i := range p.Flights {
		f := &p.Flights[i]
		who := f.ID // unkeyed flights go to every producer in turn
		if f.Tailnum != "" {
			h := fnv.New32a()
			h.Write([]byte(f.Tailnum))
			who = int64(h.Sum32())
		}
		share := &shares[who%int64(len(shares))]
		*share = append(*share, f)
	}
	group, ctx := errgroup.WithContext(ctx)
	began, begun := time.Now(), atomic.Int64{}
	for _, share := range shares {
		group.Go(func() error {
			for _, f := range share {
				if p.Rate > 0 {
					due := began.Add(time.Duration(float64(begun.Add(1)) / p.Rate * float64(time.Second)))
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Until(due)):
					}
				}
				rollback := rollsBack(p.Seed, f.ID, p.Rollback)
				if err := airline.Depart(ctx, f, rollback); err != nil {
					return err
				}
				if rollback {
					p.rolledBack.Add(1)
				} else {
					p.committed.Add(1)
				}
			}
			return nil
		})
	}
	return group.Wait()
}
