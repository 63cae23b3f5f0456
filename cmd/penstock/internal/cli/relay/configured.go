package relay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/terminal"
)

// configured is the configuration of the flags: one subscription without a file, or those of the
// file. The database is found as for any verb.
func configured(a *cli.App, f *relayFlags) (*config.Config, error) {
	cfg := &config.Config{}
	if f.Outbox == "" && f.adopt == "" && f.sink == "" {
		if len(f.withoutFile) > 0 {
			return nil, terminal.Usage(fmt.Errorf("--%s goes with --outbox or --adopt, and --sink: with a configuration file, write it there", f.withoutFile[0]))
		}
		var err error
		if cfg, err = f.chosen(a); err != nil {
			return nil, err
		}
	} else {
		a.Stderr.Hide(f.sink)
		s, err := f.described()
		if err != nil {
			return nil, err
		}
		cfg.Subscriptions = append(cfg.Subscriptions, s)
	}
	if err := errors.Join(f.metrics.Set(&cfg.Metrics), f.console.Set(&cfg.Console)); err != nil {
		return nil, err
	}
	url, schema, err := a.Database()
	cfg.DatabaseURL, cfg.Schema = config.URL(url), schema
	cfg.SetDefaults()
	if len(cfg.Subscriptions) > 0 {
		for _, wrong := range cfg.Subscriptions[0].Misfits(cfg.DatabaseURL) {
			wrong.Field = "--" + strings.ReplaceAll(wrong.Field, "_", "-")
			return nil, terminal.Usage(wrong)
		}
	}
	return cfg, err
}

// chosen are the subscriptions of the file, or the one that --subscription names.
func (f *relayFlags) chosen(a *cli.App) (*config.Config, error) {
	cfg, err := a.LoadConfig()
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, terminal.Usage(errors.New("nothing to relay is given: pass --outbox and --sink, or --config penstock.yaml"))
	}
	if len(cfg.Subscriptions) == 0 && (len(cfg.Workers) == 0 || f.Name != "") {
		return nil, terminal.Usage(errors.New("the configuration has no subscriptions: run penstock serve to take messages, or add one"))
	}
	if f.Name == "" {
		return cfg, nil
	}
	cfg.Workers = nil
	var names []string
	for _, s := range cfg.Subscriptions {
		names = append(names, s.Name)
	}
	cfg.Subscriptions = slices.DeleteFunc(cfg.Subscriptions, func(s config.Subscription) bool { return s.Name != f.Name })
	if len(cfg.Subscriptions) == 0 {
		return nil, terminal.Usage(fmt.Errorf("--subscription %q is not in the configuration, which has %s", f.Name, strings.Join(names, ", ")))
	}
	return cfg, nil
}

// described is the subscription that flags describe without a file.
func (f *relayFlags) described() (s config.Subscription, err error) {
	switch {
	case f.Outbox != "" && f.adopt != "":
		return s, terminal.Usage(errors.New("--outbox and --adopt are both given: a subscription reads an outbox or a table that is adopted"))
	case f.adopt == "" && f.Outbox == "":
		return s, terminal.Usage(errors.New("--sink is given without --outbox: say which outbox to relay, or with --adopt which table"))
	case f.sink == "":
		return s, terminal.Usage(fmt.Errorf("%s is given without --sink: say where to relay it, as in --sink amqp://guest:guest@localhost/", map[bool]string{true: "--outbox", false: "--adopt"}[f.Outbox != ""]))
	}
	for _, name := range []string{"table", "workers"} {
		if f.adopt == "" && slices.Contains(f.withoutFile, name) {
			return s, terminal.Usage(fmt.Errorf("--%s goes with --adopt: with an outbox it has no meaning", name))
		}
	}
	if f.Relay.Lease == 0 && slices.Contains(f.withoutFile, "lease") {
		return s, terminal.Usage(errors.New("--lease is 0: use a time such as 15s"))
	}
	s = f.Subscription
	s.Name = cmp.Or(f.Name, "default")
	if s.Relay.Rate, err = cli.ParseRate(f.rate, s.Relay.Rate.Burst); err != nil {
		return s, err
	}
	if err = s.Relay.Rate.Validate(); err != nil {
		return s, terminal.Usage(err)
	}
	if s.Start, err = cli.ParseStart(f.start); err != nil {
		return s, err
	}
	if s.Sink, err = config.ParseSink(f.sink); err != nil {
		return s, terminal.Usage(fmt.Errorf("--sink: %w", err))
	}
	if s.Filter, err = f.FilterFlags.Read(); err != nil {
		return s, err
	}
	if f.adopt != "" {
		c, err := adopt.Described(f.adopt, f.table, f.workers)
		if err != nil {
			return s, err
		}
		s.Adopt, s.Name = &config.Adopt{Config: c}, cmp.Or(f.Name, c.Table)
	}
	_, queued := s.Sink.Queue()
	if queued && s.Adopt == nil {
		for _, name := range f.withoutFile {
			if name != "start" && name != "lease" {
				return s, terminal.Usage(fmt.Errorf("--%s has no meaning with a queue as the sink: it gets every message, and its workers retry", name))
			}
		}
	}
	if f.claimCheck != "" {
		if s.ClaimCheck, err = config.ParseClaimCheck(f.claimCheck); err != nil {
			return s, terminal.Usage(fmt.Errorf("--claim-check: %w", err))
		}
	}
	if f.format == "" {
		return s, nil
	}
	if s.Format, err = config.ParseFormat(f.format, s.Origin()); err == nil && !queued {
		err = s.Format.ValidateFor(s.Sink.Binding())
	}
	if err != nil {
		return s, terminal.Usage(fmt.Errorf("--format: %w", err))
	}
	return s, nil
}

// logger is the file's logger unless the flags configure it.
func (f *relayFlags) logger(a *cli.App) (*slog.Logger, error) {
	if f.Outbox == "" && f.adopt == "" && !f.logs {
		if cfg, err := a.LoadConfig(); err == nil && cfg != nil {
			return cfg.Log.NewLogger(a.Stderr), nil
		}
	}
	return a.Logger()
}
