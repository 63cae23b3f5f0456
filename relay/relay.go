// Package relay carries the messages of one subscription from a source to a sink.
// It fetches them ahead of sending and keeps them in lanes by key. It settles them
// once the sink has confirmed them, or once they are parked or dead letters.
// DESIGN.md in this folder has more.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Relay runs one subscription.
type Relay struct {
	cfg      config
	drain    chan struct{}
	drainOne sync.Once
}

// config has the arguments of New.
type config struct {
	Options
	store                Store
	outbox, subscription string
	sink                 driver.Sink
	pace                 pace
}

// New returns a relay that waits for Run. It closes neither the store nor the sink. It returns a *penstock.FieldError
// for an argument that no relay can work with.
func New(store Store, outbox, subscription string, sink driver.Sink, opts Options) (*Relay, error) {
	opts.SetDefaults()
	switch {
	case store == nil:
		return nil, &penstock.FieldError{Field: "store", Problem: "is nil", Hint: "open one, for example with postgres.Open"}
	case sink == nil:
		return nil, &penstock.FieldError{Field: "sink", Problem: "is nil", Hint: "open one, for example with rabbitmq.Open"}
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if err := (&driver.Subscribe{Subscription: subscription, Holder: opts.Holder, Lease: opts.Lease}).Validate(); err != nil {
		return nil, err
	}
	return &Relay{cfg: config{opts, store, outbox, subscription, sink, newPace(opts.Rate)}, drain: make(chan struct{})}, nil
}

// Drain makes Run finish. It sends no more messages, waits for running Sends, settles
// messages that have a verdict, gives the lease back and returns nil. Messages that
// wait for another attempt are parked. Drain itself returns at once; a second call
// does nothing.
func (r *Relay) Drain() { r.drainOne.Do(func() { close(r.drain) }) }

// Run relays until Drain, then returns nil, or until ctx ends, then returns its
// error. In the latter case it cancels running Sends, and the next relay gets the
// messages that were not settled. It continues through failures of the database and
// the broker. Before ctx ends it returns an error only if waiting does not help:
// penstock.ErrClosed for a closed store, or a *penstock.FieldError. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	log := r.cfg.Logger.With("subscription", r.cfg.subscription)
	for {
		source, opened, err := r.open(ctx, log)
		if err != nil {
			return err
		}
		if source == nil {
			return nil // drained before it began
		}
		err = newSession(&r.cfg, log, source, r.drain).run(ctx, opened)
		if err == nil || ctx.Err() != nil {
			return err
		}
		log.Warn("the subscription was lost; its next holder sends the messages that were not settled", "err", err)
		sleep(ctx, r.drain, time.Second)
	}
}

// open takes the lease, however long that takes. It returns when the call that
// took it began, and a nil source if the relay is drained before.
func (r *Relay) open(ctx context.Context, log *slog.Logger) (driver.Source, time.Time, error) {
	retry := backoff{least: time.Second, most: 15 * time.Second}
	standby := backoff{least: 250 * time.Millisecond, most: max(min(time.Second, r.cfg.Lease/2), 250*time.Millisecond)}
	heldLog := throttle{log: log, every: time.Minute}
	var holder, failing string // the last error of a database that cannot be reached, until it can
	for {
		select {
		case <-r.drain:
			return nil, time.Time{}, nil
		default:
		}
		start := time.Now()
		call, cancel := context.WithTimeout(ctx, sourceTimeout)
		source, err := r.cfg.store.Subscribe(call, driver.Subscribe{Outbox: r.cfg.outbox, Subscription: r.cfg.subscription, Holder: r.cfg.Holder, Lease: r.cfg.Lease, Start: r.cfg.Start})
		cancel()
		if failing != "" && (err == nil || errors.Is(err, penstock.ErrHeld)) {
			log.Info("can open the subscription again")
			failing = ""
		}
		var wait time.Duration
		switch {
		case err == nil:
			log.Info("took the lease", "lease", r.cfg.Lease)
			return source, start, nil
		case ctx.Err() != nil:
			return nil, start, ctx.Err()
		case hopeless(err):
			return nil, start, err
		case errors.Is(err, penstock.ErrHeld):
			wait = standby.next()
			var held *penstock.HeldError
			switch {
			case !errors.As(err, &held):
				heldLog.Log(slog.LevelInfo, standingBy, "err", err)
			case held.Holder != holder: // once is enough: this may last for weeks
				holder = held.Holder
				log.Info(standingBy, "holder", holder)
			}
		default:
			wait = retry.next()
			if why := err.Error(); why != failing { // once is enough: this may last for hours
				failing = why
				log.Error("cannot open the subscription, and tries until it can", append([]any{"err", err}, nextStep(err)...)...)
			}
		}
		if !sleep(ctx, r.drain, wait) && ctx.Err() != nil {
			return nil, start, ctx.Err()
		}
	}
}

// hopeless reports whether Subscribe will fail with this error whenever it is called.
func hopeless(err error) bool {
	_, bad := errors.AsType[*penstock.FieldError](err)
	return bad || errors.Is(err, penstock.ErrClosed)
}

const standingBy = "standing by: another relay holds the subscription"

// nextStep is the operator's next step for an error of Subscribe, if the error does not say it.
func nextStep(err error) []any {
	var hinted *penstock.HintError
	hint := "is the database up, and are its URL, user and password right?"
	switch {
	case errors.As(err, &hinted):
		return nil
	case errors.Is(err, penstock.ErrNoOutbox):
		hint = "create the outbox: penstock outbox create NAME"
	case errors.Is(err, penstock.ErrNotMigrated):
		hint = "run: penstock migrate"
	}
	return []any{"hint", hint}
}
