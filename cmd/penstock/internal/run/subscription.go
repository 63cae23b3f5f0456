package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/forward"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/previous"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/trace"
)

// subscription is a subscription to run, of an outbox or of an adopted table.
type subscription struct {
	*config.Subscription
	relays *Relays
}

// subscriber takes the lease of a subscription: a store, or an adopted table.
type subscriber interface {
	Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error)
}

// shared takes a share of a store's subscription.
type shared struct{ driver.Sharer }

func (s shared) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	return s.SubscribeShared(ctx, req)
}

// open adds the runner of the subscription.
func (s *subscription) open(ctx context.Context) error {
	r := s.relays
	for _, wrong := range s.Misfits(r.cfg.DatabaseURL) {
		return fmt.Errorf("subscription %q: %w", s.Name, wrong)
	}
	if s.Adopt != nil {
		return s.openTable(ctx)
	}
	if queue, is := s.Sink.Queue(); is {
		if r.o.Metrics != nil {
			r.o.Metrics.Forwarding(s.Outbox, s.Name)
		}
		r.all = append(r.all, newForwarding(s, queue))
		return nil
	}
	var from subscriber = r.store
	if s.Shared {
		sharer, ok := r.store.(driver.Sharer)
		if !ok {
			return penstock.WithHint(fmt.Errorf("subscription %q: shared: in this database a subscription has one relay at a time", s.Name), "leave it out, or use the portable profile")
		}
		from = shared{sharer}
	}
	if r.together[s.Outbox] == nil {
		r.together[s.Outbox] = &together{made: make(chan struct{})}
	}
	return s.add(ctx, r.together[s.Outbox].with(from), r.o.Holder)
}

// together are a configuration's subscriptions of one outbox. None is read before all are created. Otherwise messages that the existing ones
// have settled may be gone, and the others would begin behind them.
type together struct {
	missing atomic.Int32
	made    chan struct{}
}

// with adds one of them.
func (t *together) with(from subscriber) subscriber {
	t.missing.Add(1)
	return &oneOf{together: t, from: from}
}

type oneOf struct {
	*together
	from subscriber
	made bool
}

// Subscribe waits for the others the first time, but no longer than until the lease must be renewed.
func (o *oneOf) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	source, err := o.from.Subscribe(ctx, req)
	if o.made || err != nil && !errors.Is(err, penstock.ErrHeld) {
		return source, err
	}
	o.made = true
	if o.missing.Add(-1) == 0 {
		close(o.together.made)
	}
	if err == nil {
		select {
		case <-o.together.made:
		case <-time.After(req.Lease / 3):
		case <-ctx.Done():
		}
	}
	return source, err
}

// openTable adds the relays over an adopted table, one per worker. Each has its own sink: a sink
// must not get a key from two relays at a time, and workers claim rows of one key concurrently.
func (s *subscription) openTable(ctx context.Context) error {
	r := s.relays
	table, err := drivers.OpenTable(ctx, r.cfg.DatabaseURL.Reveal(), r.cfg.Schema, s.Name, s.Adopt.Config, r.o.Log)
	if err != nil {
		return fmt.Errorf("subscription %q: %w", s.Name, err)
	}
	r.ends = append(r.ends, func() { _ = table.Close() })
	if r.o.Metrics != nil {
		r.o.Metrics.Table(s.Origin(), s.Name, table.Status)
	}
	for i := range max(s.Adopt.Workers, 1) {
		holder := r.o.Holder
		if s.Adopt.Workers > 1 {
			holder = fmt.Sprintf("%s#%d", holder, i+1)
		}
		if err := s.add(ctx, table, holder); err != nil {
			return err
		}
	}
	return nil
}

// add adds a relay.
func (s *subscription) add(ctx context.Context, from subscriber, holder string) error {
	r := s.relays
	sink, err := s.openSink()
	if err != nil {
		return fmt.Errorf("the sink of subscription %q: %w", s.Name, err)
	}
	counters := &relay.Counters{}
	opts := s.Relay.Options()
	opts.Holder, opts.Start, opts.Filter, opts.Logger, opts.Observer = holder, s.Start.Of(), s.Filter, r.o.Log, counters
	if r.o.Metrics != nil {
		observer := r.o.Metrics.Relay(s.Origin(), s.Name)
		opts.Observer, counters = observer, &observer.Counters
	}
	opts.Observer = trace.Relay(s.Origin(), s.Name, opts.Observer)
	pump, err := relay.New(&reading{subscription: s, from: from}, s.Outbox, s.Name, sink, opts)
	if err != nil {
		s.closeSink(ctx, sink)
		return fmt.Errorf("subscription %q: %w", s.Name, err)
	}
	r.all = append(r.all, pump)
	r.ends = append(r.ends, func() {
		r.o.Log.Info("stopped", "subscription", s.Name, "delivered", counters.Delivered.Load(), "refused", counters.Failed.Load(),
			"retried", counters.Retried.Load(), "settled", counters.SettledMessages.Load())
		s.closeSink(ctx, sink)
	})
	return nil
}

// reading is the store of the subscription's relay.
type reading struct {
	*subscription
	from     subscriber
	answered bool // the database knows the subscription, or its holder
}

// Subscribe ends everything if waiting would not help and no call has succeeded before. Later it waits as for other
// failures, because a running relay should survive every change of its database.
func (r *reading) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	source, err := r.from.Subscribe(ctx, req)
	switch {
	case err == nil, errors.Is(err, penstock.ErrHeld), errors.Is(err, penstock.ErrFenced): // fenced: to take the lease lasted longer than a lease
		r.answered = true
	case !r.answered && !waitable(err):
		r.relays.failed(about.Outbox(err, fmt.Sprintf("subscription %q of %s %q", r.Name, r.origin(), r.Origin()), r.Outbox, r.Name))
	}
	return source, err
}

// Maintain does nothing for an adopted table: the application maintains it.
func (r *reading) Maintain(ctx context.Context, outbox string) error {
	if r.Adopt != nil {
		return nil
	}
	return r.relays.store.Maintain(ctx, outbox)
}

// openSink opens the sink with its wrappers. The format is the last, so it sees the headers and references
// that were added before.
func (s *subscription) openSink() (driver.Sink, error) {
	sink, err := s.Sink.Open(s.relays.o.Log)
	if err != nil {
		return nil, err
	}
	if s.Format != nil {
		formatted, err := format.Wrap(sink, s.Format.Config, s.Sink.Binding())
		if err != nil {
			s.closeSink(context.Background(), sink)
			return nil, err
		}
		sink = formatted
	}
	if s.ClaimCheck != nil {
		payloads, err := drivers.OpenClaimCheck(s.ClaimCheck.Config)
		if err != nil {
			s.closeSink(context.Background(), sink)
			return nil, err
		}
		sink = claimcheck.Wrap(sink, payloads, s.Origin(), s.ClaimCheck.MaxInlineBytes)
	}
	if s.Previous {
		sink = previous.Wrap(sink, 0)
	}
	return sink, nil
}

func (s *subscription) closeSink(ctx context.Context, sink driver.Sink) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := sink.Close(ctx); err != nil {
		s.relays.o.Log.Warn("closing the sink", "err", err)
	}
}

// origin names the kind of thing that the subscription reads.
func (s *subscription) origin() string {
	if s.Adopt != nil {
		return "table"
	}
	return "outbox"
}

// waitable reports whether a failure to subscribe may be temporary.
func waitable(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		penstock.IsUnavailable(err) || pgerror.IsDown(err) ||
		errors.Is(err, sqlite.ErrBusy) || errors.Is(err, sqlite.ErrFull) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err) || // the connection broke
		retry.Of(err) != retry.None || slices.Contains([]string{"53100", "53200", "55P03", "57014"}, pgerror.State(err)) // no disk or memory, a timeout
}

// forwarding runs a subscription whose sink is a queue of the same database. It is on standby and
// waits for the database as a relay does.
type forwarding struct {
	forward func(ctx context.Context) (begun bool, err error) // until ctx ends
	name    string                                            // of the subscription
	log     *slog.Logger
	pause   time.Duration // between two tries
	drain   func()
	drained chan struct{}
}

func newForwarding(s *subscription, queue string) *forwarding {
	r := s.relays
	req := driver.Subscribe{Outbox: s.Outbox, Subscription: s.Name, Holder: r.o.Holder, Lease: s.Relay.Lease, Start: s.Start.Of()}
	drained := make(chan struct{})
	return &forwarding{
		forward: func(ctx context.Context) (begun bool, err error) {
			f, ok := r.store.(driver.Forwarder)
			if !ok {
				return false, &penstock.FieldError{Field: "sink.queue", Problem: "is for PostgreSQL and SQLite", Hint: "enqueue in the business transaction itself"}
			}
			err = f.Forward(ctx, req, queue)
			return forward.Begun(err), about.Outbox(about.Queue(err, "", queue), "", s.Outbox, s.Name)
		},
		name: s.Name, log: r.o.Log.With("subscription", s.Name, "queue", queue), pause: time.Second,
		drained: drained, drain: sync.OnceFunc(func() { close(drained) }),
	}
}

// Drain makes Run return. A batch in progress is written whole with the cursor, or not at all, so
// there is nothing to wait for.
func (f *forwarding) Drain() { f.drain() }

// Run returns nil after Drain. As with a relay, an error that waiting cannot fix ends it at the
// start. After the subscription has run once, Run waits instead.
func (f *forwarding) Run(ctx context.Context) error {
	forwarding, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-f.drained:
			stop()
		case <-forwarding.Done():
		}
	}()
	answered, standsBy := false, ""
	for {
		begun, err := f.forward(forwarding)
		answered = answered || begun
		var held *penstock.HeldError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil, forwarding.Err() != nil: // drained
			return nil
		case errors.As(err, &held):
			answered = true
			if held.Holder != standsBy {
				standsBy = held.Holder
				f.log.Info("standing by: another relay holds the subscription", "holder", held.Holder)
			}
		case errors.Is(err, penstock.ErrFenced):
			answered = true
			f.log.Warn("lost the lease: another relay has taken over")
		case !answered && !waitable(err):
			return fmt.Errorf("subscription %q: %w", f.name, err)
		default:
			f.log.Error("cannot forward the subscription; trying again", "err", err, "in", f.pause)
		}
		select {
		case <-time.After(f.pause):
		case <-forwarding.Done():
		}
	}
}
