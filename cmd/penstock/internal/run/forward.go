package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/forward"
)

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
