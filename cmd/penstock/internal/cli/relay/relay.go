// Package relay has penstock relay.
package relay

import (
	"cmp"
	"context"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/console"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/terminal"
)

type relayFlags struct {
	cli.FilterFlags
	config.Subscription              // as far as flags fill it in themselves
	sink, start, holder, rate        string
	format, claimCheck, adopt, table string
	workers                          int
	metrics                          cli.MetricsFlags
	console                          console.Flags
	withoutFile                      []string // flags given that have no meaning with a file
	empty                            string   // a flag given without a value that it needs
	logs                             bool     // whether flags set how to log
}

func Command(a *cli.App) *cobra.Command {
	var f relayFlags
	cmd := terminal.Verb("relay", "Deliver committed messages to a broker", func(cmd *cobra.Command, _ []string) error {
		f.given(cmd.Flags())
		return relay(cmd.Context(), a, &f)
	})
	cmd.Annotations = terminal.OwnSignals
	f.add(cmd.Flags())
	return cmd
}

func (f *relayFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Outbox, "outbox", "", "`outbox` to relay")
	flags.StringVar(&f.adopt, "adopt", "", "instead of an outbox, relay a table that exists already, of this `kind`: "+strings.Join(adopted.PresetNames(), ", "))
	flags.StringVar(&f.table, "table", "", "with --adopt: the `table`, or schema.table (default the kind's)")
	flags.IntVar(&f.workers, "workers", 1, "with --adopt: `number` of workers that claim rows in parallel, without order; 1 keeps the order")
	flags.StringVar(&f.Name, "subscription", "", "`name` of the subscription (default \"default\" with --outbox, the table's with --adopt, all without)")
	flags.StringVar(&f.sink, "sink", "", "`url` of the sink: amqp://…, nats://…, embedded, kafka://…, redis://…, sqs://…, sns://…, pubsub://…, amqp1://…, https://…, queue:NAME, stdout or discard")
	flags.StringVar(&f.start, "start", "beginning", "`start` of a new subscription: beginning or now")
	f.FilterFlags.Add(flags, "deliver")
	flags.StringVar(&f.format, "format", "", "`format` of messages: raw, cloudevents or debezium (default raw)")
	flags.StringVar(&f.claimCheck, "claim-check", "", "`url` of the bucket or directory where large payloads are stored")
	flags.BoolVar(&f.Previous, "previous", false, "add the header penstock-previous: the id of the message before of the same key")
	flags.Var(textFlag{&f.Relay.MaxAttempts, "number"}, "max-attempts", "`number` of attempts before a message is a dead letter, or unlimited (default 25)")
	flags.Var(textFlag{&f.Relay.MaxAge, "duration"}, "max-age", "`duration` for which a refused message is tried before it is a dead letter (default unlimited)")
	flags.Var(textFlag{&f.Relay.OnDead, "text"}, "on-dead", "`action` of a dead letter's key: continue or hold (default continue)")
	flags.Var((*cli.Span)(&f.Relay.Lease), "lease", "`duration` after which another relay takes over from one that crashed (default 15s)")
	flags.StringVar(&f.rate, "rate", "", "`messages/duration` that are sent at most, such as 60/1m (default no limit)")
	flags.IntVar(&f.Relay.Rate.Burst, "burst", 0, "with --rate: `number` of messages that are sent at once after a pause (default 1)")
	f.metrics.Add(flags, "")
	f.console.AddListen(flags)
	flags.StringVar(&f.holder, "holder", "", "`name` of this relay in status (default host and process id)")
}

// given notes which flags were given.
func (f *relayFlags) given(flags *pflag.FlagSet) {
	f.logs = flags.Changed("log-level") || flags.Changed("log-format")
	for _, name := range []string{"start", "topic", "header", "max-attempts", "max-age", "on-dead", "lease", "rate", "burst", "format", "claim-check", "previous", "table", "workers"} {
		if flags.Changed(name) {
			f.withoutFile = append(f.withoutFile, name)
		}
	}
	for _, name := range []string{"subscription", "table", "format", "claim-check", "rate"} {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			f.empty = name
		}
	}
}

// textFlag is a flag of a type that the configuration file has too.
type textFlag struct {
	value encoding.TextUnmarshaler
	kind  string
}

func (f textFlag) String() string     { return "" } // defaults are the relay's
func (f textFlag) Type() string       { return f.kind }
func (f textFlag) Set(v string) error { return f.value.UnmarshalText([]byte(v)) }

func relay(ctx context.Context, a *cli.App, f *relayFlags) error {
	log := f.logger(a)
	cfg, err := configured(a, f)
	if err != nil {
		return err
	}
	if err := a.Trace(ctx); err != nil {
		return err
	}
	store, err := a.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer cli.WarnOfDifferences(ctx, store, "", false, log)()
	o := run.Options{Store: store, Holder: f.holder, Log: log}
	if cfg.Console.Listen != "" { // which shows latencies
		o.Metrics = run.NewMetrics(cfg, o)
	}
	if _, err := console.Serve(ctx, a, cfg.Console, o.Metrics); err != nil {
		return err
	}
	return a.Run(ctx, cfg, o)
}

// configured is the configuration of the flags: one subscription without a file, or those of the
// file. The database is found as for any verb.
func configured(a *cli.App, f *relayFlags) (*config.Config, error) {
	cfg := &config.Config{}
	if f.empty != "" { // as from a variable of a script that is not set: what it asks for must not be missing silently
		return nil, terminal.Usage(fmt.Errorf("--%s is empty: give a value, or leave it out", f.empty))
	}
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
	needless := func(name string) error {
		return cli.Refuse(f.adopt == "" && slices.Contains(f.withoutFile, name), "--%s goes with --adopt: with an outbox it has no meaning", name)
	}
	if err = cmp.Or(
		cli.Refuse(f.Outbox != "" && f.adopt != "", "--outbox and --adopt are both given: a subscription reads an outbox or a table that is adopted"),
		cli.Refuse(f.adopt == "" && f.Outbox == "", "--sink is given without --outbox: say which outbox to relay, or with --adopt which table"),
		cli.Refuse(f.sink == "", "%s is given without --sink: say where to relay it, as in --sink amqp://guest:guest@localhost/",
			map[bool]string{true: "--outbox", false: "--adopt"}[f.Outbox != ""]),
		needless("table"), needless("workers"),
		cli.Refuse(f.Relay.Lease == 0 && slices.Contains(f.withoutFile, "lease"), "--lease is 0: use a time such as 15s"),
	); err != nil {
		return s, err
	}
	s = f.Subscription
	s.Name = cmp.Or(f.Name, "default")
	var wrong [5]error // the first is reported
	s.Relay.Rate, wrong[0] = cli.ParseRate(f.rate, s.Relay.Rate.Burst)
	wrong[1] = terminal.Usage(s.Relay.Rate.Validate())
	s.Start, wrong[2] = cli.ParseStart(f.start)
	s.Sink, err = config.ParseSink(f.sink)
	wrong[3] = terminal.Usage(about.While(err, "--sink"))
	s.Filter, wrong[4] = f.FilterFlags.Read()
	if err = cmp.Or(wrong[:]...); err != nil {
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
	return s, terminal.Usage(about.While(err, "--format"))
}

// logger is the file's logger unless the flags configure it.
func (f *relayFlags) logger(a *cli.App) *slog.Logger {
	if f.Outbox == "" && f.adopt == "" && !f.logs {
		if cfg, err := a.LoadConfig(); err == nil && cfg != nil {
			a.LogLevel, a.LogFormat = cfg.Log.Level.String(), string(cfg.Log.Format)
		}
	}
	return a.Logger()
}
