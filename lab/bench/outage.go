package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/lab/measure"
)

func outageCommand(a *app) *cobra.Command {
	f, cfg := benchFlags{}, measure.DefaultOutage
	cmd := &cobra.Command{
		Use:   "outage",
		Short: "Measure producers and relay while the broker is dead, and after",
		Long: `Let producers commit at a steady rate, one message per transaction, while the
broker is up, then dead, then up again:

  commits         how long a commit takes a producer, with the broker up and while
                  it is dead: an outbox exists so that there is no difference
  attempts spent  by messages that met the outage: zero, an outage is not theirs
  drain           messages/s once the broker is back, from the first confirm until
                  as many are confirmed as were committed when it came back
  ceiling         the same messages from memory, the mean of before and after
  ratio           drain / ceiling

The broker's connections go through a proxy in this process, which cuts them and
refuses new ones; ceilings are measured through it, too. It takes amqp:// and
nats:// with one host and no TLS. With embedded, stdout and discard, which have no
connections, the sink answers that it is unavailable.

Producers stop when the broker is back, unless --keep-arriving. Afterwards a
consumer reads the broker and checks that nothing was lost and each key came in
order: exit code 3 otherwise.

On PostgreSQL each writer has a connection, unless --database-url sets
pool_max_conns. If the rate that arrived is below --rate, the writers were all
busy: give more of them.`,
		Example: `  bench outage --before 5s --outage 10s
  bench outage --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/
  bench outage --rate 5000 --outage 1m --keep-arriving --repeat 3 --json`,
		PreRunE: valid(&cfg),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.conns = cfg.Writers + 4 // the others are for the relay
			return measures(a, &f, &cfg, benchOutageTable, measure.Outage)(cmd, args)
		},
	}
	f.register(cmd, &cfg.PayloadBytes)
	f.logLevel = "error" // that the sink refuses is expected here
	flags := cmd.Flags()
	flags.IntVar(&cfg.Rate, "rate", cfg.Rate, "messages per second")
	flags.IntVar(&cfg.Writers, "writers", cfg.Writers, "producers that share the rate")
	flags.DurationVar(&cfg.Before, "before", cfg.Before, "how long to measure with the broker up")
	flags.DurationVar(&cfg.Outage, "outage", cfg.Outage, "how long the broker is dead")
	flags.BoolVar(&cfg.KeepArriving, "keep-arriving", cfg.KeepArriving, "producers go on while the backlog drains")
	flags.IntVar(&cfg.CeilingOf, "ceiling-of", cfg.CeilingOf, "messages per measurement of the ceiling")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "outages; the median counts")
	return cmd
}

func benchOutageTable(w io.Writer, r measure.OutageResult) error {
	t := newFigures(w)
	t.row("messages", "%d/s of %d bytes, the broker dead for %.0f s: %s", r.Rate, r.PayloadBytes, r.OutageSeconds, r.By)
	t.row("commits before", "p50 %.2f ms, p99 %.2f ms", r.BeforeP50MS, r.BeforeP99MS)
	t.row("commits during", "p50 %.2f ms, p99 %.2f ms, %.0f messages/s arrived", r.OutageP50MS, r.OutageP99MS, r.Arrived)
	t.row("attempts spent", "%d; %d dead letters, %d parked", r.AttemptsSpent, r.DeadLetters, r.Parked)
	arrivals := "arrivals stopped"
	if r.KeepArriving {
		arrivals = "arrivals going on"
	}
	t.row("backlog", "%d messages, the first confirmed %.0f ms after the broker's return", r.Backlog, r.ResumedMS)
	t.row("drain", "%.0f messages/s, %s", r.Drain, arrivals)
	t.row("ceiling", "%.0f messages/s", r.Ceiling)
	t.row("ratio", "%s of the ceiling, %.2f from the broker's return", ratios(r.Ratio, r.Ratios), r.RatioFromReturn)
	t.row("peak memory", "%.0f MiB before, %.0f during the outage, %.0f while draining", r.BeforeUse.RSSMB, r.OutageUse.RSSMB, r.DrainUse.RSSMB)
	t.row("delivered", "%s", checked(r.Check))
	return t.flush()
}
