package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/previous"
	"github.com/penstock/penstock/trace"
)

// subscription is one to run, of an outbox or of an adopted table.
type subscription struct {
	*config.Subscription
	relays *Relays
}

// subscriber takes the lease of a subscription: a store, or an adopted table.
type subscriber interface {
	Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error)
}

// shared takes a part of the subscriptions of a store.
type shared struct{ driver.Sharer }

func (s shared) Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error) {
	return s.SubscribeShared(ctx, req)
}

// open adds what runs the subscription.
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
	cfg := s.config(from, r.o.Holder)
	cfg.Maintain = func(ctx context.Context) error { return r.store.Maintain(ctx, s.Outbox) }
	if r.together[s.Outbox] == nil {
		r.together[s.Outbox] = &together{made: make(chan struct{})}
	}
	cfg.Open = r.together[s.Outbox].after(cfg.Open, cfg.Lease)
	return s.add(ctx, cfg)
}

// together are the subscriptions of an outbox that a configuration has. None is read before all are made: what every subscription so far has
// settled may be gone, and the others would begin behind it.
type together struct {
	missing atomic.Int32
	made    chan struct{}
}

// after opens one of them. The first time it waits for the others, though no longer than it takes until the lease is to be renewed.
func (t *together) after(open func(context.Context) (driver.Source, error), lease time.Duration) func(context.Context) (driver.Source, error) {
	t.missing.Add(1)
	made := false
	return func(ctx context.Context) (driver.Source, error) {
		source, err := open(ctx)
		if made || err != nil && !errors.Is(err, penstock.ErrHeld) {
			return source, err
		}
		made = true
		if t.missing.Add(-1) == 0 {
			close(t.made)
		}
		if err == nil {
			select {
			case <-t.made:
			case <-time.After(lease / 3):
			case <-ctx.Done():
			}
		}
		return source, err
	}
}

// openTable adds the relays over an adopted table, one per worker. Each has a sink
// of its own: a sink is never handed a key by two at a time, and workers claim rows
// of one key side by side.
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
		if err := s.add(ctx, s.config(table, holder)); err != nil {
			return err
		}
	}
	return nil
}

// add adds a relay. The config lacks its sink.
func (s *subscription) add(ctx context.Context, cfg relay.Config) error {
	r := s.relays
	sink, err := s.openSink()
	if err != nil {
		return fmt.Errorf("the sink of subscription %q: %w", s.Name, err)
	}
	counters := &relay.Counters{}
	cfg.Sink, cfg.Observer = sink, counters
	if r.o.Metrics != nil {
		observer := r.o.Metrics.Relay(s.Origin(), s.Name)
		cfg.Observer, counters = observer, &observer.Counters
	}
	cfg.Observer = trace.Relay(s.Origin(), s.Name, cfg.Observer)
	pump, err := relay.New(cfg)
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

// config of the subscription's relay. What cannot be cured by waiting ends everything
// if it shows before the first success; later it is waited for like the rest,
// because a running relay should survive whatever is done to its database.
func (s *subscription) config(from subscriber, holder string) relay.Config {
	cfg := s.Relay.Config()
	cfg.Filter = s.Filter
	cfg.Outbox, cfg.Name = s.Outbox, s.Name
	cfg.Logger = s.relays.o.Log
	answered := false // the database knows the subscription, or its holder
	cfg.Open = func(ctx context.Context) (driver.Source, error) {
		source, err := from.Subscribe(ctx, s.request(holder, cfg.Lease))
		switch {
		case err == nil, errors.Is(err, penstock.ErrHeld):
			answered = true
		case !answered && !waitable(err):
			s.relays.failed(about.Outbox(err, fmt.Sprintf("subscription %q of %s %q", s.Name, s.origin(), s.Origin()), s.Outbox, s.Name))
		}
		return source, err
	}
	return cfg
}

func (s *subscription) request(holder string, lease time.Duration) driver.Subscribe {
	return driver.Subscribe{Outbox: s.Outbox, Subscription: s.Name, Holder: holder, Lease: lease, Start: driver.Start(s.Start)}
}

// openSink opens the sink with what stands in front of it. The format is last, so
// that it sees the headers that were added before.
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

// origin says what kind of thing the subscription reads.
func (s *subscription) origin() string {
	if s.Adopt != nil {
		return "table"
	}
	return "outbox"
}

// waitable reports whether a failure to subscribe may pass by itself.
func waitable(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		penstock.IsUnavailable(err) || pgerror.IsDown(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err) // the connection broke
}
