package bench

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/lab/bench"
)

type benchWebhookFlags struct {
	benchFlags
	messages, keys, repeat int
	delay                  time.Duration
}

func webhookCommand(a *cli.App) *cobra.Command {
	var f benchWebhookFlags
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Measure the relay against an endpoint that takes its time",
		Long: `Measure, in one run and on the same messages, how many requests per second an
endpoint of this process answers that takes --delay for each:

  client  net/http posts from memory, --keys requests at a time
  relay   a relay that drains a backlog, in order within each of --keys keys
  ratio   relay / client

The endpoint shares the machine with both; CPU says how busy it was. It also notes
what came: a message that is lost or out of order means exit code 3.`,
		Example: `  penstock bench webhook
  penstock bench webhook --database-url postgres://postgres@localhost/postgres --keys 200 --delay 20ms --repeat 5 --json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return benchWebhook(a, cmd, f) },
	}
	f.register(cmd)
	f.logLevel = "error" // the sink warns of an endpoint without TLS
	flags := cmd.Flags()
	_ = flags.MarkHidden("sink") // it is the endpoint
	flags.IntVar(&f.messages, "messages", 40_000, "messages per backlog")
	flags.IntVar(&f.keys, "keys", 200, "different keys, and requests at a time")
	flags.DurationVar(&f.delay, "delay", 20*time.Millisecond, "how long the endpoint takes for each request")
	flags.IntVar(&f.repeat, "repeat", 1, "pairs; the median counts")
	return cmd
}

func benchWebhook(a *cli.App, cmd *cobra.Command, f benchWebhookFlags) error {
	cfg := bench.WebhookConfig{Messages: orNegative(f.messages), Keys: orNegative(f.keys), Delay: orNegative(f.delay), PayloadBytes: orNegative(f.payload), Repeat: orNegative(f.repeat)}
	if err := cfg.Validate(); err != nil {
		return cli.Usage(err)
	}
	return runBench(a, cmd, f.benchFlags, benchWebhookTable, func(ctx context.Context, b benchOn) (bench.WebhookResult, error) {
		cfg.Setup = b.setup
		return bench.Webhook(ctx, cfg)
	})
}

func benchWebhookTable(w io.Writer, r bench.WebhookResult) error {
	t := newFigures(w)
	t.row("messages", "%d of %d bytes, %d keys, %s ms for each answer", r.Messages, r.PayloadBytes, r.Keys, ms(r.DelayMS))
	if r.Limit > 0 {
		t.row("limit", "%.0f requests/s, if nothing but that took time", r.Limit)
	}
	t.row("client", "%.0f requests/s, net/http from memory", r.Client)
	t.row("relay", "%.0f requests/s", r.Relay)
	t.row("ratio", "%s of the client", ratios(r.Ratio, r.Ratios))
	for _, side := range []struct {
		name string
		bench.CPU
	}{{"CPU, client", r.ClientCPU}, {"CPU, relay", r.RelayCPU}} {
		t.row(side.name, "this process with the endpoint %.2f, PostgreSQL %.2f, all together %.2f of %d cores", side.Client, side.Server, side.Machine, side.Cores)
	}
	t.row("arrived", "%s", checked(r.Check))
	return t.flush()
}
