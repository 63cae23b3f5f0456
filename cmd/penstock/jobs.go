package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
	"github.com/penstock/penstock/format"
	"github.com/penstock/penstock/relay"
)

// relayJob is one subscription to run.
type relayJob struct {
	outbox, subscription, holder string
	start                        penstock.Start
	sink                         config.Sink
	format                       *config.WireFormat // nil: as they are
	previous                     bool
	limits                       relay.Config // limits and filter only
}

// relayJobs is what the flags ask for: one subscription without a file, or
// those of the file.
func (a *app) relayJobs(f relayFlags) ([]relayJob, error) {
	holder := f.holder
	if holder == "" {
		holder = defaultHolder()
	}
	if f.outbox == "" && f.sink == "" {
		if len(f.withoutFile) > 0 {
			return nil, usage(fmt.Errorf("--%s goes with --outbox and --sink: with a configuration file, write it there", f.withoutFile[0]))
		}
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
	limits, err := f.limits()
	if err != nil {
		return nil, err
	}
	sink, err := config.ParseSink(f.sink)
	if err != nil {
		return nil, usage(fmt.Errorf("--sink: %w", err))
	}
	if sink.Queue != nil {
		for _, name := range f.withoutFile {
			if name != "from" && name != "lease" {
				return nil, usage(fmt.Errorf("--%s has no meaning with a queue as the sink: it gets every message, and its workers retry", name))
			}
		}
	}
	var wire *config.WireFormat
	if f.format != "" {
		if wire, err = config.ParseFormat(f.format, f.outbox); err != nil {
			return nil, usage(fmt.Errorf("--format: %w", err))
		}
		if err := wire.ValidateFor(format.Binding(sink.Name())); err != nil && sink.Queue == nil {
			return nil, usage(fmt.Errorf("--format: %w", err))
		}
	}
	job := relayJob{outbox: f.outbox, subscription: f.subscription, holder: holder, start: start, sink: sink, format: wire, previous: f.previous, limits: limits}
	if job.subscription == "" {
		job.subscription = "default"
	}
	return []relayJob{job}, nil
}

// limits are those that the flags set, and the filter.
func (f *relayFlags) limits() (relay.Config, error) {
	if f.lease == 0 && slices.Contains(f.withoutFile, "lease") {
		return relay.Config{}, usage(errors.New("--lease is 0: use a time such as 15s"))
	}
	limits := config.Relay{Lease: time.Duration(f.lease), MaxAttempts: f.maxAttempts, MaxAge: f.maxAge, OnDead: f.onDead}
	rc := limits.Config()
	rc.Filter.Topics = f.topics
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok {
			return rc, usage(fmt.Errorf("--header %q has no =: write NAME=VALUE, or NAME=* for any value", header))
		}
		if before, twice := rc.Filter.Headers[name]; twice && before != value {
			return rc, usage(fmt.Errorf("--header %s is given with two values: no message has both", name))
		}
		if rc.Filter.Headers == nil {
			rc.Filter.Headers = map[string]string{}
		}
		rc.Filter.Headers[name] = value
	}
	return rc, usage(rc.Filter.Validate())
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
				format: s.Format, previous: s.Previous, limits: configuredLimits(&s),
			})
		}
	}
	if len(jobs) == 0 {
		return nil, usage(fmt.Errorf("--subscription %q is not in the configuration, which has %s", f.subscription, strings.Join(names, ", ")))
	}
	return jobs, nil
}

// configuredLimits hands on what the file says.
func configuredLimits(s *config.Subscription) relay.Config {
	rc := s.Relay.Config()
	rc.Filter = s.Filter
	return rc
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
