package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
	"github.com/penstock/penstock/relay"
)

// relayJob is one subscription to run.
type relayJob struct {
	outbox, subscription, holder string
	start                        penstock.Start
	sink                         config.Sink
	tuning                       relay.Config // limits only
}

// relayJobs is what the flags ask for: one subscription without a file, or
// those of the file.
func (a *app) relayJobs(f relayFlags) ([]relayJob, error) {
	holder := f.holder
	if holder == "" {
		holder = defaultHolder()
	}
	if f.outbox == "" && f.sink == "" {
		return a.configuredJobs(f, holder)
	}
	switch {
	case f.outbox == "":
		return nil, usage(errors.New("--sink is given without --outbox: say which outbox to relay"))
	case f.sink == "":
		return nil, usage(errors.New("--outbox is given without --sink: say where to relay it, as in --sink amqp://guest:guest@localhost/"))
	}
	a.stderr.hide(f.sink)
	start, err := parseStart(f.from)
	if err != nil {
		return nil, err
	}
	sink, err := config.ParseSink(f.sink)
	if err != nil {
		return nil, usage(fmt.Errorf("--sink: %w", err))
	}
	job := relayJob{outbox: f.outbox, subscription: f.subscription, holder: holder, start: start, sink: sink}
	if job.subscription == "" {
		job.subscription = "default"
	}
	return []relayJob{job}, nil
}

func (a *app) configuredJobs(f relayFlags, holder string) ([]relayJob, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, usage(errors.New("nothing to relay is given: pass --outbox and --sink, or --config penstock.yaml"))
	}
	var (
		jobs  []relayJob
		names []string
	)
	for _, s := range cfg.Subscriptions {
		names = append(names, s.Name)
		if f.subscription == "" || f.subscription == s.Name {
			jobs = append(jobs, relayJob{
				outbox: s.Outbox, subscription: s.Name, holder: holder, start: penstock.Start(s.Start), sink: s.Sink,
				tuning: tuning(cfg.Relay),
			})
		}
	}
	if len(jobs) == 0 {
		return nil, usage(fmt.Errorf("--subscription %q is not in the configuration, which has %s", f.subscription, strings.Join(names, ", ")))
	}
	return jobs, nil
}

// tuning hands on the limits of the file.
func tuning(r config.Relay) relay.Config {
	return relay.Config{
		Lease: r.Lease, MaxInFlight: r.MaxInFlight, MaxInFlightBytes: r.MaxInFlightBytes, MaxBatch: r.MaxBatch, Senders: r.Senders,
		PollMin: r.PollMin, PollMax: r.PollMax, SettleEvery: r.SettleEvery, RetryMin: r.RetryMin, RetryMax: r.RetryMax,
		SendTimeout: r.SendTimeout, DrainTimeout: r.DrainTimeout,
	}
}

// relayLogger is the file's logger unless the flags say otherwise.
func (a *app) relayLogger(fromFlags bool) (*slog.Logger, error) {
	if !fromFlags {
		if cfg, err := a.loadConfig(); err == nil && cfg != nil {
			return cfg.Log.NewLogger(a.stderr), nil
		}
	}
	return a.logger()
}
