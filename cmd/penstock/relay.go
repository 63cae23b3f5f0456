package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
)

type relayFlags struct {
	outbox, subscription, sink, from, holder string
	logs                                     bool // whether flags say how to log
}

func (a *app) relayCommand() *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Carry committed messages to a broker",
		Long: `Carry committed messages to a broker, until it is told to stop.

Without --outbox it runs every subscription of the configuration file, or the
one that --subscription names. With --outbox and --sink it needs no file.

A message counts as delivered when the broker has confirmed it. Messages of one
key arrive one after another; different keys do not wait for each other. After a
crash, messages that were confirmed and not yet noted are sent again with the
same id.

Only one relay drives a subscription at a time. A second one stands by and takes
over when the first is gone, at once if it ended in order and after the lease
(15 s) if it crashed.

A database or a broker that is down is waited for, and the log says so.

SIGTERM or SIGINT drains: nothing more is fetched, what was fetched is sent and
noted, the lease is given back, exit code 0. A second one hurries: what has no
confirmation yet is left to the next relay, exit code 130.`,
		Example: `  penstock relay --outbox orders --sink amqp://guest:guest@localhost/
  penstock relay --outbox orders --sink 'nats://localhost:4222?subject=shop.{topic}'
  penstock relay --outbox orders --sink stdout
  penstock relay --config penstock.yaml
  penstock relay --config penstock.yaml --subscription billing`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.logs = cmd.Flags().Changed("log-level") || cmd.Flags().Changed("log-format")
			return a.relay(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.outbox, "outbox", "", "outbox to relay")
	flags.StringVar(&f.subscription, "subscription", "", "name of the subscription (default \"default\" with --outbox, all without)")
	flags.StringVar(&f.sink, "sink", "", "amqp://…, nats://…, embedded, stdout or discard")
	flags.StringVar(&f.from, "from", "beginning", "where a new subscription begins: beginning or now")
	flags.StringVar(&f.holder, "holder", "", "name of this relay in status (default host and process id)")
	return cmd
}

// errHurried is why relays end at the second signal.
var errHurried = errors.New("hurried")

func (a *app) relay(ctx context.Context, f relayFlags) error {
	jobs, err := a.relayJobs(f)
	if err != nil {
		return err
	}
	log, err := a.relayLogger(f.outbox != "" || f.logs)
	if err != nil {
		return err
	}
	store, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	slog.SetDefault(log) // where stores write their warnings

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pumps []*relay.Relay
	for _, job := range jobs {
		sink, err := job.sink.Open(log)
		if err != nil {
			return usage(fmt.Errorf("the sink of subscription %q: %w", job.subscription, err))
		}
		defer closeSink(ctx, sink, log)
		counters := &relay.Counters{}
		defer logTotals(log, job.subscription, counters)
		pump, err := relay.New(job.relayConfig(store, sink, counters, log, cancel))
		if err != nil {
			return usage(fmt.Errorf("subscription %q: %w", job.subscription, err))
		}
		pumps = append(pumps, pump)
		log.Info("relaying", "outbox", job.outbox, "subscription", job.subscription, "sink", job.sink.Name(), "holder", job.holder)
	}
	stopListening := onSignals(func() {
		log.Info("draining: sending and noting what is fetched; a second signal hurries")
		for _, p := range pumps {
			p.Drain()
		}
	}, func() {
		log.Warn("hurrying: what has no confirmation yet is left to the next relay")
		cancel(errHurried)
	})
	defer stopListening()

	group, ctx := errgroup.WithContext(ctx)
	for _, p := range pumps {
		group.Go(func() error { return p.Run(ctx) })
	}
	err = group.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if errors.Is(err, errHurried) {
		return &exitError{code: exitInterrupted, err: err}
	}
	return err
}

// relayConfig of the job's relay. What cannot be cured by waiting ends the process
// if it shows before the first success; later it is waited for like the rest,
// because a running relay should survive whatever is done to its database.
func (j *relayJob) relayConfig(store penstock.Store, sink penstock.Sink, counters *relay.Counters, log *slog.Logger, fail context.CancelCauseFunc) relay.Config {
	cfg := j.tuning
	cfg.Name = j.subscription
	cfg.Sink = sink
	cfg.Logger = log
	cfg.Observer = counters
	subscribed := false
	cfg.Open = func(ctx context.Context) (penstock.Source, error) {
		source, err := store.Subscribe(ctx, penstock.Subscribe{
			Outbox: j.outbox, Subscription: j.subscription, Holder: j.holder, Lease: cfg.Lease, Start: j.start,
		})
		switch {
		case err == nil:
			subscribed = true
		case !subscribed && !waitable(err):
			fail(fmt.Errorf("subscription %q of outbox %q: %w", j.subscription, j.outbox, err))
		}
		return source, err
	}
	cfg.Maintain = func(ctx context.Context) error { return store.Maintain(ctx, j.outbox) }
	return cfg
}

// waitable reports whether a failure to subscribe may pass by itself.
func waitable(err error) bool {
	return errors.Is(err, penstock.ErrHeld) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || isDatabaseDown(err)
}

func closeSink(ctx context.Context, sink penstock.Sink, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := sink.Close(ctx); err != nil {
		log.Warn("closing the sink", "error", err)
	}
}

func logTotals(log *slog.Logger, subscription string, c *relay.Counters) {
	log.Info("stopped", "subscription", subscription, "delivered", c.Delivered.Load(), "refused", c.Failed.Load(),
		"retried", c.Retried.Load(), "settled", c.SettledMessages.Load())
}

// defaultHolder names this process in status.
func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
