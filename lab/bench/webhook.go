package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/lab/measure"
)

func webhookCommand(a *app) *cobra.Command {
	f, cfg := benchFlags{}, measure.DefaultWebhook
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
		Example: `  bench webhook
  bench webhook --database-url postgres://postgres@localhost/postgres --keys 200 --delay 20ms --repeat 5 --json`,
		PreRunE: valid(&cfg),
		RunE:    measures(a, &f, &cfg, benchWebhookTable, measure.Webhook),
	}
	f.register(cmd, &cfg.PayloadBytes)
	f.logLevel = "error" // the sink warns of an endpoint without TLS
	flags := cmd.Flags()
	_ = flags.MarkHidden("sink") // it is the endpoint
	flags.IntVar(&cfg.Messages, "messages", cfg.Messages, "messages per backlog")
	flags.IntVar(&cfg.Keys, "keys", cfg.Keys, "different keys, and requests at a time")
	flags.DurationVar(&cfg.Delay, "delay", cfg.Delay, "how long the endpoint takes for each request")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "pairs; the median counts")
	return cmd
}

func benchWebhookTable(w io.Writer, r measure.WebhookResult) error {
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
		measure.CPU
	}{{"CPU, client", r.ClientCPU}, {"CPU, relay", r.RelayCPU}} {
		t.row(side.name, "this process with the endpoint %.2f, PostgreSQL %.2f, all together %.2f of %d cores", side.Client, side.Server, side.Machine, side.Cores)
	}
	t.row("arrived", "%s", checked(r.Check))
	return t.flush()
}
