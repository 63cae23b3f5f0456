package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

func bufferingCommand(a *app) *cobra.Command {
	var (
		f   queueBenchFlags
		cfg measure.BufferingConfig
	)
	cmd := &cobra.Command{
		Use:   "buffering",
		Short: "Publish one by one through the buffer, and by single and bulk statements",
		Long: `Publish in one transaction: one INSERT each, through the buffer (docs/guides/buffering.md),
in one statement, and with COPY; from a row trigger; and with ON CONFLICT DO NOTHING,
each by itself and as a set; then the same with each of --delays added to each round
trip, where what takes one a message has a fiftieth of the messages. "Write Buffering to
Reduce Raft Consensus Latency" (Franck Pachot, 2025) has 33 flushes for 100,000 rows
in 3.6 s, 100,000 with ON CONFLICT DO NOTHING in 139.7 s, 33 as a set in 1.6 s, and
100,000 with a row trigger in 94.3 s.

Then callers without a transaction, each with one message at a time: committing by
themselves, on up to 64 connections (pool_max_conns in the URL), and through a writer
that shares commits; the same on a SQLite file in $TMPDIR.`,
		Example: `  bench buffering --database-url postgres://postgres@localhost/postgres
  bench buffering --delays 10ms --callers 64 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Publishes, cfg.Duration = orNegative(cfg.Publishes), orNegative(cfg.Duration)
			if err := cfg.Validate(); err != nil {
				return terminal.Usage(err)
			}
			return runQueueBench(a, cmd, f, bufferingTable, bufferingChart, func(ctx context.Context, b benchPostgres) (measure.BufferingResult, error) {
				cfg.Database, cfg.Store = b.database, b.setup.Store
				return measure.Buffering(ctx, cfg)
			})
		},
	}
	f.register(cmd)
	f.conns = 64
	flags := cmd.Flags()
	flags.IntVar(&cfg.Publishes, "publishes", 100_000, "messages of the transaction")
	flags.DurationSliceVar(&cfg.Delays, "delays", []time.Duration{time.Millisecond, 5 * time.Millisecond}, "added to each round trip, in turn; 0 to leave that out")
	flags.IntSliceVar(&cfg.Callers, "callers", []int{1, 8, 64, 200}, "how many without a transaction, one measurement each")
	flags.DurationVar(&cfg.Duration, "duration", 3*time.Second, "of each of these, 0 to leave them out")
	flags.IntVar(&cfg.PayloadBytes, "payload", 200, "bytes of each payload")
	return cmd
}

func bufferingTable(w io.Writer, r measure.BufferingResult) error {
	t := terminal.NewTable(w, terminal.Left("WAY"), terminal.Right("MESSAGES"), terminal.Right("FLUSHES"), terminal.Right("SECONDS"), terminal.Right("PER SECOND"), terminal.Right("PUBLISHED FLUSHES"), terminal.Right("SECONDS"))
	rows := func(ways []measure.BufferingWay, suffix string) {
		for _, way := range ways {
			flushes, seconds := "", ""
			if p := way.Published; p != nil && suffix == "" {
				flushes, seconds = terminal.Count(int64(p.Flushes)), fmt.Sprintf("%.1f", p.Seconds)
			}
			t.Row(way.Name+suffix, terminal.Count(int64(way.Messages)), terminal.Count(int64(way.Flushes)), fmt.Sprintf("%.2f", way.Seconds), terminal.Count(int64(way.PerSecond)), flushes, seconds)
		}
	}
	rows(r.Ways, "")
	for _, d := range r.Delayed {
		rows(d.Ways, fmt.Sprintf(", + %g ms", d.DelayMS))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "published, of 100,000 rows: %s\n", measure.BufferingSource)
	f := newFigures(w)
	var reasons []string
	for reason, n := range r.FlushesBy {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, n))
	}
	slices.Sort(reasons)
	f.row("buffer", "%d flushes: %s; published: a full buffer of 3,072 each", r.Flushes, strings.Join(reasons, ", "))
	f.row("", "%.2f of one statement, %.1f × one INSERT each", r.RatioToBulk, r.SpeedupOverSingle)
	for _, d := range r.Delayed {
		f.row("", "%.1f × with %g ms more a round trip", d.SpeedupOverSingle, d.DelayMS)
	}
	for i, c := range slices.Concat(r.Writers, r.WritersSQLite) {
		on := ""
		if i >= len(r.Writers) {
			on = ", SQLite"
		}
		f.row(fmt.Sprintf("%d callers%s", c.Callers, on), "%s/s alone, p99 %s ms; %s/s by a writer, p99 %s ms: %.1f ×",
			terminal.Count(int64(c.AutocommitPerSecond)), ms(c.AutocommitP99MS), terminal.Count(int64(c.WriterPerSecond)), ms(c.WriterP99MS), c.Speedup)
	}
	return f.flush()
}

func bufferingChart(r measure.BufferingResult) plot.Chart {
	alone, shared := plot.Series{Name: "a commit each"}, plot.Series{Name: "one writer"}
	for _, c := range r.Writers {
		alone.Points = append(alone.Points, plot.Point{X: float64(c.Callers), Y: c.AutocommitPerSecond})
		shared.Points = append(shared.Points, plot.Point{X: float64(c.Callers), Y: c.WriterPerSecond})
	}
	return plot.Chart{
		Title:    "Callers without a transaction",
		Subtitle: fmt.Sprintf("payload %d bytes; in one transaction %d messages took the buffer %d flushes", r.PayloadBytes, r.Publishes, r.Flushes),
		Panels:   []plot.Panel{{X: "callers", Y: "messages/s", Log: true, Series: []plot.Series{alone, shared}}},
	}
}
