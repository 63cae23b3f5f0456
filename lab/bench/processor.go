package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

func processorCommand(a *app) *cobra.Command {
	f, cfg := queueBenchFlags{}, measure.DefaultProcessor
	cmd := &cobra.Command{
		Use:   "processor",
		Short: "Climb a published ladder of outbox processors, then adopt its table",
		Long: `Climb the ladder of "Scaling the Outbox Pattern" (Milan Jovanović, 2024) on its
table outbox_messages, PostgreSQL to RabbitMQ, by hand and with the broker's own
client; each rung keeps what the one before it improved:

  baseline            SELECT *, no index, each publish awaited, one UPDATE a row
  covering index      only the columns needed, from the index alone
  concurrent publish  all messages of a batch, then all confirms
  batch update        one UPDATE per batch
  5 workers           FOR UPDATE SKIP LOCKED, a connection each
  batched publish     many messages in one write to the socket

then, in the same run:

  ceiling             the broker confirms the same messages from memory
  adopted             Penstock on the same table, with the index of the last rung
  outbox              Penstock on an outbox of its own

Confirms are on and messages persistent everywhere. Each begins with --rows fresh
rows, vacuumed and analysed, and an empty queue, and ends when all are processed or
after --duration. Milliseconds are the mean per batch of one worker; the update's
include the commit. messages/s count to the last row that is marked as processed,
those of the ceiling to the last confirm. The baseline reads the whole table for
each batch: its figure depends on --rows (2 million as published).

Afterwards the broker's own client reads every queue: a message that was marked and
is not there means exit code 3.`,
		Example: `  bench processor --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/
  bench processor --rows 2000000 --duration 1m --plot ladder.svg  # as published
  bench processor --repeat 3 --json`,
		PreRunE: func(*cobra.Command, []string) error {
			cfg.SinkURL = f.sink
			return terminal.Usage(cfg.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQueueBench(a, cmd, f, benchProcessorTable, benchProcessorChart, func(ctx context.Context, b benchPostgres) (measure.ProcessorResult, error) {
				cfg.Setup, cfg.Database = b.setup, b.database
				return measure.Processor(ctx, cfg)
			})
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.sink, "sink", "amqp://guest:guest@localhost:5672/", "the broker, amqp://… or amqps://…")
	flags.IntVar(&cfg.Rows, "rows", cfg.Rows, "rows that each rung begins with")
	flags.IntVar(&cfg.Batch, "batch", cfg.Batch, "rows at a time, by hand")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long each rung is measured, at most")
	flags.IntVar(&cfg.PayloadBytes, "payload", cfg.PayloadBytes, "bytes of each content, about")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "rounds of everything; medians count")
	return cmd
}

func benchProcessorTable(w io.Writer, r measure.ProcessorResult) error {
	fmt.Fprintln(w, processorText(r))
	t := terminal.NewTable(w, terminal.Left("RUNG"), terminal.Right("QUERY MS"), terminal.Right("PUBLISH MS"), terminal.Right("UPDATE MS"), terminal.Right("MESSAGES/S"), terminal.Right("PUBLISHED"))
	for _, rung := range r.Rungs {
		published := ""
		if rung.Published > 0 {
			published = terminal.Count(int64(rung.Published))
		}
		t.Row(rung.Name, ms(rung.QueryMS), ms(rung.PublishMS), ms(rung.UpdateMS), terminal.Count(int64(rung.MessagesPerSecond)), published)
	}
	for _, side := range processorOthers(r) {
		t.Row(side.name, "", "", "", terminal.Count(int64(side.rate)), "")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	f := newFigures(w)
	of := func(ratio func(measure.ProcessorRatios) float64) string {
		all := make([]float64, len(r.Rounds))
		for i, round := range r.Rounds {
			all[i] = ratio(round)
		}
		return ratios(ratio(r.Ratios), all)
	}
	f.row("adopted", "%s of the best rung, %s of the ceiling", of(func(r measure.ProcessorRatios) float64 { return r.AdoptedOverBestRung }),
		of(func(r measure.ProcessorRatios) float64 { return r.AdoptedOverCeiling }))
	f.row("outbox", "%s of the ceiling", of(func(r measure.ProcessorRatios) float64 { return r.OutboxOverCeiling }))
	f.row("best rung", "%s of the ceiling", of(func(r measure.ProcessorRatios) float64 { return r.BestRungOverCeiling }))
	f.row("over the baseline", "adopted %s times, best rung %s times; published 24 times", of(func(r measure.ProcessorRatios) float64 { return r.FactorOverBaseline }),
		of(func(r measure.ProcessorRatios) float64 { return r.BestRungOverBaseline }))
	return f.flush()
}

// processorText describes the run.
func processorText(r measure.ProcessorResult) string {
	return fmt.Sprintf("%s rows of %d bytes, batches of %s by hand, %s a rung at most", terminal.Count(int64(r.Rows)), r.PayloadBytes, terminal.Count(int64(r.Batch)),
		time.Duration(r.Duration*float64(time.Second)))
}

type processorSide struct {
	name, short string
	rate        float64
}

// processorOthers are the contenders that are compared with the ladder.
func processorOthers(r measure.ProcessorResult) []processorSide {
	return []processorSide{{"Penstock, adopted", "adopted", r.Adopted}, {"Penstock, own outbox", "outbox", r.Outbox}, {"ceiling of the broker", "ceiling", r.Ceiling}}
}

// benchProcessorChart has the steps of a batch above, messages/s below.
func benchProcessorChart(r measure.ProcessorResult) plot.Chart {
	steps := []plot.Series{{Name: "query"}, {Name: "publish"}, {Name: "update"}, {Name: "messages/s"}}
	rates := make([]plot.Series, len(steps)) // the last, for its colour
	var names []string
	add := func(name string, rate float64) {
		rates[3].Points = append(rates[3].Points, plot.Point{X: float64(len(names)), Y: rate})
		names = append(names, name)
	}
	for i, rung := range r.Rungs {
		for at, y := range []float64{rung.QueryMS, rung.PublishMS, rung.UpdateMS} {
			steps[at].Points = append(steps[at].Points, plot.Point{X: float64(i), Y: y})
		}
		add(shortRung(rung.Name), rung.MessagesPerSecond)
	}
	rungs := len(names)
	for _, side := range processorOthers(r) {
		add(side.short, side.rate)
	}
	return plot.Chart{
		Title: "Outbox processors, PostgreSQL to RabbitMQ", Subtitle: processorText(r),
		Panels: []plot.Panel{
			{X: "what was improved last", Y: "ms per batch", Log: true, Series: steps, Ticks: names[:rungs]},
			{X: "by hand, then Penstock, and the broker alone", Y: "messages/s", Series: rates, Ticks: names, Bars: true},
		},
	}
}

// shortRung fits next to eight others.
func shortRung(name string) string {
	switch name {
	case "covering index":
		return "index"
	case "concurrent publish":
		return "concurrent"
	case "batched publish":
		return "batched"
	}
	return name
}
