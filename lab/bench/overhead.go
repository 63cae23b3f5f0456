package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
)

func overheadCommand(a *app) *cobra.Command {
	f, cfg := benchFlags{}, measure.DefaultOverhead
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Measure what metrics and traces cost",
		Long: `Drain a backlog of messages with a relay, and one of jobs with work.Run, in pairs:
once alone, once observed. Observed means that metrics are kept and scraped, the
status of the database among them, and that the spans of one message or job in
--sampled go to a collector over OTLP. Both have the same headers. Where the store
can keep jobs that are done, a third line says what work.Run loses by that.

  ratio  observed / alone, the median of the pairs`,
		Example: `  bench overhead --database-url postgres://postgres@localhost/postgres --sink discard
  bench overhead --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/ --sampled 1 --json`,
		PreRunE: valid(&cfg),
		RunE:    measures(a, &f, &cfg, benchOverheadTable, measure.MeasureOverhead),
	}
	f.register(cmd, &cfg.PayloadBytes)
	flags := cmd.Flags()
	flags.IntVar(&cfg.Messages, "messages", cfg.Messages, "messages of a backlog")
	flags.IntVar(&cfg.Jobs, "jobs", cfg.Jobs, "jobs of one")
	flags.IntVar(&cfg.Repeat, "repeat", cfg.Repeat, "pairs; the median counts")
	flags.IntVar(&cfg.Sampled, "sampled", cfg.Sampled, "one message or job in so many is traced")
	flags.DurationVar(&cfg.ScrapeEvery, "scrape-every", cfg.ScrapeEvery, "how often the metrics are scraped")
	return cmd
}

func benchOverheadTable(w io.Writer, r measure.OverheadResult) error {
	t := newFigures(w)
	row := func(name, unit string, o measure.Overhead) {
		t.row(name, "%.0f %s/s alone, %.0f observed: %s", o.Alone, unit, o.Observed, ratios(o.Ratio, o.Ratios))
	}
	row("relay", "messages", r.Relay)
	if r.Work != nil {
		row("work.Run", "jobs", *r.Work)
	}
	if r.History != nil {
		t.row("history", "%.0f jobs/s alone, %.0f kept: %s", r.History.Alone, r.History.Observed, ratios(r.History.Ratio, r.History.Ratios))
	}
	t.row("observed", "%d scrapes, %s of spans", r.Spans.Scrapes, terminal.Size(r.Spans.TraceBytes))
	return t.flush()
}
