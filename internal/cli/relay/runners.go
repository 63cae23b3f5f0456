package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// runner is what runs a subscription until it is drained: a relay, or a
// forwarding into a queue.
type runner interface {
	Run(ctx context.Context) error
	Drain()
}

// subscriber takes the lease of a subscription: a store, or an adopted table.
type subscriber interface {
	Subscribe(ctx context.Context, req penstock.Subscribe) (penstock.Source, error)
}

// runnersOf returns what runs the job, and what is to be called when all of that has
// ended.
func runnersOf(ctx context.Context, a *cli.App, j *relayJob, store penstock.Store, log *slog.Logger, fail context.CancelCauseFunc) ([]runner, func(), error) {
	switch {
	case j.adopt != nil:
		return tableRunners(ctx, a, j, log, fail)
	case j.sink.Queue != nil:
		return []runner{newForwarding(j, string(*j.sink.Queue), store, log)}, func() {}, nil
	}
	cfg := j.relayConfig(store, j.holder, log, fail)
	cfg.Maintain = func(ctx context.Context) error { return store.Maintain(ctx, j.outbox) }
	r, end, err := j.relay(ctx, cfg, log)
	return []runner{r}, end, err
}

// tableRunners are the relays over an adopted table, one per worker. Each has a sink
// of its own: a sink is never handed a key by two at a time, and workers claim rows
// of one key side by side.
func tableRunners(ctx context.Context, a *cli.App, j *relayJob, log *slog.Logger, fail context.CancelCauseFunc) ([]runner, func(), error) {
	url, schema, err := a.Database()
	if err != nil {
		return nil, nil, err
	}
	if cli.IsSQLiteURL(url) {
		return nil, nil, cli.Usage(errors.New("tables are adopted in PostgreSQL, and this database is SQLite: relay an outbox"))
	}
	table, err := adopt.Open(ctx, adopt.Options{URL: url, Schema: schema, Subscription: j.subscription, Config: *j.adopt, Log: log})
	if err != nil {
		return nil, nil, cli.Usage(fmt.Errorf("subscription %q: %w", j.subscription, err))
	}
	ends := []func(){func() { _ = table.Close() }}
	end := func() {
		for i := range ends {
			ends[len(ends)-1-i]() // in the order of defer
		}
	}
	var all []runner
	for i := range max(j.adopt.Workers, 1) {
		holder := j.holder
		if j.adopt.Workers > 1 {
			holder = fmt.Sprintf("%s#%d", j.holder, i+1)
		}
		r, stop, err := j.relay(ctx, j.relayConfig(table, holder, log, fail), log)
		if err != nil {
			end()
			return nil, nil, err
		}
		all, ends = append(all, r), append(ends, stop)
	}
	return all, end, nil
}

// relay returns a relay and what is to be called when it has ended. The config lacks
// its sink.
func (j *relayJob) relay(ctx context.Context, cfg relay.Config, log *slog.Logger) (runner, func(), error) {
	sink, err := j.openSink(log)
	if err != nil {
		return nil, nil, cli.Usage(fmt.Errorf("the sink of subscription %q: %w", j.subscription, err))
	}
	counters := &relay.Counters{}
	cfg.Sink, cfg.Observer = sink, counters
	pump, err := relay.New(cfg)
	if err != nil {
		closeSink(ctx, sink, log)
		return nil, nil, cli.Usage(fmt.Errorf("subscription %q: %w", j.subscription, err))
	}
	return pump, func() {
		logTotals(log, j.subscription, counters)
		closeSink(ctx, sink, log)
	}, nil
}

// relayConfig of the job's relay. What cannot be cured by waiting ends the process
// if it shows before the first success; later it is waited for like the rest,
// because a running relay should survive whatever is done to its database.
func (j *relayJob) relayConfig(from subscriber, holder string, log *slog.Logger, fail context.CancelCauseFunc) relay.Config {
	cfg := j.limits
	cfg.Outbox, cfg.Name = j.outbox, j.subscription
	cfg.Logger = log
	answered := false // the database knows the subscription, or its holder
	cfg.Open = func(ctx context.Context) (penstock.Source, error) {
		source, err := from.Subscribe(ctx, penstock.Subscribe{
			Outbox: j.outbox, Subscription: j.subscription, Holder: holder, Lease: cfg.Lease, Start: j.start,
		})
		switch {
		case err == nil, errors.Is(err, penstock.ErrHeld):
			answered = true
		case !answered && !waitable(err):
			fail(cli.About(err, fmt.Sprintf("subscription %q of %s %q", j.subscription, j.origin(), j.reads()), j.outbox, j.subscription))
		}
		return source, err
	}
	return cfg
}

// origin says what kind of thing the job reads.
func (j *relayJob) origin() string {
	if j.adopt != nil {
		return "table"
	}
	return "outbox"
}
