package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/relay"
)

// Setup is given to every experiment.
type Setup struct {
	// URL is of the database. Schema is Penstock's there, migrated; hand-written tables are also made in it.
	URL, Schema string
	Store       driver.Store
	Name        string // begins the names of all that is made, and removed at the end
	// Simulator of YugabyteDB to which the URL leads, or nil.
	Simulator *wire.Yugabyte

	// SinkURL is where to send; each phase gets a separate queue there.
	SinkURL  string
	OpenSink func(url string) (driver.Sink, error)

	Log      *slog.Logger
	Progress func(text string) // may be nil
}

// On has the experiment run on s.
func (s *Setup) On(o Setup) { *s = o }

func (s Setup) progress(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// rig is a Setup at work: it makes and removes the objects of the phases of one run.
type rig struct {
	Setup
	outbox string // of the phase that runs
	phases int    // for the names of queues and outboxes
}

func newRig(s Setup) *rig { return &rig{Setup: s, outbox: s.Name} }

// inOutbox makes r.outbox, runs do and drops it.
func (r *rig) inOutbox(ctx context.Context, do func(context.Context) error) (err error) {
	if err := r.Store.CreateOutbox(ctx, r.outbox); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.Store.DropOutbox(context.WithoutCancel(ctx), r.outbox))
	}()
	return do(ctx)
}

// inNewOutbox runs do with an outbox that nothing has ever been in, so that
// what one run leaves behind does not slow the next.
func (r *rig) inNewOutbox(ctx context.Context, do func(context.Context) error) error {
	r.phases++
	r.outbox = fmt.Sprintf("%s_%d", r.Name, r.phases)
	return r.inOutbox(ctx, do)
}

// queue is a place at the broker that one phase sends to.
type queue struct {
	sink   driver.Sink
	reader readback.Broker // nil where the sink cannot be read back
	dir    string          // for the files of an embedded broker
}

// inQueue runs do with a sink that has a separate queue.
func (r *rig) inQueue(ctx context.Context, do func(*queue) error) (err error) {
	q, err := r.open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close(ctx)) }()
	return do(q)
}

// open gives a phase a sink with a separate queue. reach, unless nil, changes the URL by which the
// sink gets there.
func (r *rig) open(ctx context.Context, reach func(sinkURL string) (string, error)) (q *queue, err error) {
	r.phases++
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	url := r.SinkURL
	q = &queue{dir: dir}
	q.reader, err = drivers.ReadBack(url, dir, fmt.Sprintf("penstock_%s_%d", r.Name, r.phases))
	if err != nil {
		return nil, err
	}
	if q.reader != nil {
		url = q.reader.SinkURL()
	}
	if reach != nil {
		if url, err = reach(url); err != nil {
			return nil, err
		}
	}
	if q.sink, err = r.OpenSink(url); err != nil {
		return nil, err
	}
	if q.reader != nil {
		if err := q.reader.Open(ctx, q.sink); err != nil { // there is nothing to remove then
			return nil, errors.Join(err, q.reader.Close(), q.sink.Close(ctx))
		}
	}
	if err := warmUp(ctx, q.sink); err != nil {
		return nil, errors.Join(err, q.close(ctx))
	}
	return q, nil
}

// close removes the queue and closes the sink.
func (q *queue) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var failed error
	if q.reader != nil {
		failed = errors.Join(q.reader.Remove(ctx), q.reader.Close())
	}
	return errors.Join(failed, q.sink.Close(ctx), os.RemoveAll(q.dir))
}

// readAll reads the contents of the queue, in the order of its arrival, and nothing
// that arrives later.
func (q *queue) readAll(ctx context.Context, got func(readback.Arrival)) error {
	if err := q.reader.Finish(ctx); err != nil {
		return err
	}
	return q.reader.Read(ctx, got)
}

// warmUp waits until the sink is connected.
func warmUp(ctx context.Context, sink driver.Sink) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		err := errors.Join(sink.Send(ctx, []penstock.Message{{ID: fmt.Sprint("warm-", time.Now().UnixNano()), Topic: "bench", Attempt: 1, CreatedAt: time.Now()}})...)
		if err == nil || !penstock.IsUnavailable(err) || ctx.Err() != nil {
			return err
		}
	}
}

const (
	subscription = "bench"
	holder       = "bench" // of every lease
)

// relaying is what a relay is made of, if it is not the outbox of this phase with what the experiment sets of the options.
type relaying struct {
	relay.Options
	sink driver.Sink
	from relay.Store // nil: the rig's store
}

// opened is a relay's store that is more, or less, than one.
type opened struct {
	open     func(ctx context.Context) (driver.Source, error)
	maintain func(ctx context.Context) error // may be nil
}

func (o opened) Subscribe(ctx context.Context, _ driver.Subscribe) (driver.Source, error) {
	return o.open(ctx)
}

func (o opened) Maintain(ctx context.Context, _ string) error {
	if o.maintain == nil {
		return nil
	}
	return o.maintain(ctx)
}

// startRelay runs a relay in the background; stop drains it.
func (r *rig) startRelay(ctx context.Context, with relaying) (stop func() error, err error) {
	with.Holder, with.Logger = holder, r.Log
	if with.from == nil {
		with.from = r.Store
	}
	rl, err := relay.New(with.from, r.outbox, subscription, with.sink, with.Options)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- rl.Run(ctx) }()
	return func() error {
		rl.Drain()
		return <-done
	}, nil
}

// status reads how the outbox of this phase stands; without a relay yet, its
// subscription is all zero.
func (r *rig) status(ctx context.Context) (outbox admin.OutboxStatus, sub admin.SubscriptionStatus, err error) {
	all, err := r.Store.Status(ctx)
	if err != nil {
		return outbox, sub, err
	}
	for _, o := range all {
		if o.Outbox != r.outbox {
			continue
		}
		for _, s := range o.Subscriptions {
			if s.Subscription == subscription {
				sub = s
			}
		}
		return o, sub, nil
	}
	return outbox, sub, fmt.Errorf("the outbox %q is gone", r.outbox)
}
