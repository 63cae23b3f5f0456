// Package relay has penstock relay.
package relay

import (
	"context"
	"encoding"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
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
	log, err := f.logger(a)
	if err != nil {
		return err
	}
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
