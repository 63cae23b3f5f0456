// Package run runs the relays and workers of a configuration, as penstock relay and penstock work
// do.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/writer"
)

// Options of a run.
type Options struct {
	// Store is the configuration's database. Close leaves it open.
	Store driver.Database
	// Holder names this process in status (default host and process id).
	Holder string
	// Metrics are updated by the relays (default: those of the configuration, if it sets where to
	// serve them).
	Metrics *metrics.Metrics
	Log     *slog.Logger
	// Version of this program, which heartbeats of workers have.
	Version string
	// Database shows where it is, for the log.
	Database string
	// Stdout and Stderr get the output of the workers' commands.
	Stdout, Stderr io.Writer
}

// Relays run the subscriptions of a configuration, each with a relay. A subscription over an
// adopted table has as many relays as workers, and one into a queue has a forwarder. They also run
// its workers, and accept messages over HTTP.
type Relays struct {
	store    driver.Database
	cfg      *config.Config
	o        Options
	all      []runner
	ends     []func()             // in the order of defer
	together map[string]*together // by outbox
	failed   context.CancelCauseFunc
}

// runner runs a subscription, or a worker, until it is drained.
type runner interface {
	Run(ctx context.Context) error
	Drain()
}

// New opens the sinks, which need not be up. The caller closes the result.
func New(ctx context.Context, cfg *config.Config, o Options) (*Relays, error) {
	o.Holder = cmp.Or(o.Holder, thisProcess())
	if o.Metrics == nil && (cfg.Metrics.Listen != "" || len(cfg.Workers) > 0) {
		o.Metrics = NewMetrics(cfg, o)
	}
	r := &Relays{store: o.Store, cfg: cfg, o: o, together: map[string]*together{}}
	for i := range cfg.Subscriptions {
		s := &subscription{Subscription: &cfg.Subscriptions[i], relays: r}
		if err := s.open(ctx); err != nil {
			r.Close()
			return nil, err
		}
		o.Log.Info("relaying", "database", o.Database, s.origin(), s.Origin(), "subscription", s.Name, "sink", s.Sink.Name(), "holder", o.Holder)
	}
	for i := range cfg.Workers {
		if err := r.work(&cfg.Workers[i]); err != nil {
			r.Close()
			return nil, err
		}
	}
	if cfg.Serve != nil && cfg.Serve.Listen != "" {
		if err := r.serve(); err != nil {
			r.Close()
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	if cfg.Metrics.Listen != "" {
		server, err := r.o.Metrics.Serve(cfg.Metrics.Listen)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("metrics: %w", err)
		}
		r.ends = append(r.ends, func() { _ = server.Close() })
	}
	return r, nil
}

// NewMetrics makes the metrics that New also makes if the configuration has an address for them.
func NewMetrics(cfg *config.Config, o Options) *metrics.Metrics {
	return metrics.New(metrics.Options{Store: o.Store, Holder: cmp.Or(o.Holder, thisProcess()), Queue: onlyQueue(cfg), Logger: o.Log,
		StatusEvery: cfg.Metrics.StatusEvery, StalledAfter: cfg.Metrics.StalledAfter, Groups: cfg.Metrics.Groups})
}

// Run returns nil after Drain, and otherwise why it ended. When ctx ends, messages without a
// confirmation are left to the next relay. An error that waiting cannot fix ends it at the start.
// After a subscription has run once, Run waits instead.
func (r *Relays) Run(ctx context.Context) error {
	ctx, r.failed = context.WithCancelCause(ctx)
	defer r.failed(nil)
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range r.all {
		group.Go(func() error { return one.Run(ctx) })
	}
	err := group.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// Drain makes Run return once sends in progress have ended and are recorded.
func (r *Relays) Drain() {
	for _, one := range r.all {
		one.Drain()
	}
}

// Close closes the sinks. Run must have returned.
func (r *Relays) Close() {
	for i := range r.ends {
		r.ends[len(r.ends)-1-i]()
	}
	r.ends = nil
}

// serve adds the server that accepts messages over HTTP.
func (r *Relays) serve() error {
	store, ok := r.store.(writer.OnceStore)
	if !ok {
		return errors.New("this database's driver cannot: use PostgreSQL or SQLite")
	}
	s := r.cfg.Serve
	o := ingest.Options{Listen: s.Listen, MaxBody: int64(s.MaxBodyBytes), MaxWait: s.MaxWait, Logger: r.o.Log}
	if r.o.Metrics != nil {
		o.Observer = r.o.Metrics.Ingest()
	}
	for _, one := range s.Outboxes {
		o.Outboxes = append(o.Outboxes, ingest.Outbox{Name: one.Name, Token: one.Token.Reveal(), Inbox: one.Inbox})
	}
	server, err := ingest.New(store, o)
	if err == nil {
		r.all = append(r.all, server)
		r.ends = append(r.ends, server.Close)
	}
	return err
}

// onlyQueue is the only queue whose status matters, if one worker is all there is to run.
func onlyQueue(cfg *config.Config) string {
	if len(cfg.Workers) != 1 || len(cfg.Subscriptions) > 0 || cfg.Serve != nil {
		return ""
	}
	return cfg.Workers[0].Queue
}

// thisProcess names it in status.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
