package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/lab/measure"
)

func poisonCommand(a *app) *cobra.Command {
	f, cfg := benchFlags{}, measure.DefaultPoison
	cmd := &cobra.Command{
		Use:   "poison",
		Short: "Measure what a key that is always refused costs the others",
		Long: `Drain a backlog of many keys twice, once as it is and once with a key that the
sink refuses every time, and compare how fast the other keys get through:

  clean   messages/s of the healthy keys, without poison
  poison  the same while the poisoned key is refused, retried and parked
  ratio   poison / clean; near 1 means that the others do not notice

What is refused is refused before it reaches the broker; everything else goes
there. The clock runs from the relay's start until the broker has confirmed the
last message of the healthy keys. Pairs alternate which run comes first. Each
run has an outbox and a queue of its own, and afterwards a consumer checks that
nothing healthy was lost or out of order: exit code 3 otherwise.`,
		Example: `  bench poison
  bench poison --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/ --repeat 9
  bench poison --poisoned 100 --json`,
		PreRunE: valid(&cfg),
		RunE:    measures(a, &f, &cfg, benchPoisonTable, measure.Poison),
	}
	f.register(cmd, &cfg.PayloadBytes)
	f.logLevel = "error" // that the sink refuses is expected here
	flags := cmd.Flags()
	flags.IntVar(&cfg.Messages, "messages", cfg.Messages, "messages per run")
	flags.IntVar(&cfg.Keys, "keys", cfg.Keys, "different keys")
	flags.IntVar(&cfg.Poisoned, "poisoned", cfg.Poisoned, "how many of them are refused")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "pairs of runs; the median counts")
	return cmd
}

func benchPoisonTable(w io.Writer, r measure.PoisonResult) error {
	t := newFigures(w)
	t.row("messages", "%d of %d bytes, %d keys, %d of them poisoned", r.Messages, r.PayloadBytes, r.Keys, r.Poisoned)
	t.row("clean", "%.0f messages/s of the healthy keys", r.Clean)
	t.row("poison", "%.0f messages/s of the healthy keys", r.Poison)
	t.row("ratio", "%s", ratios(r.Ratio, r.Ratios))
	t.row("refused", "%d attempts of poisoned messages", r.Attempts)
	t.row("parked", "%d messages of %d keys, %d dead letters", r.Parked, r.ParkedKeys, r.DeadLetters)
	return t.flush()
}
