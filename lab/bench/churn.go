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

func churnCommand(a *app) *cobra.Command {
	f, cfg := queueBenchFlags{portable: true, mysql: true}, measure.DefaultChurn
	cmd := &cobra.Command{
		Use:   "churn",
		Short: "Insert and consume for long, and see whether it stays fast",
		Long: `Run the loop of "YugabyteDB avoids bloat with the outbox pattern" (Franck Pachot,
2024) on its table outbox(ts, id, message): insert 1,000 rows, consume the oldest
1,000, again and again for --duration. Three take turns, so that each has the same
time and the same machine:

  by hand  the published DELETE of what is newer than a low-water mark, which is the
           newest timestamp deleted before, less --margin
  adopted  Penstock on the same table, with the same margin: fetched, then settled
  outbox   Penstock on an outbox of its own

  rows/s    consumed, in a contender's own turns
  latency   of consuming a batch
  flatness  the mean of the last minute over that of the first (of a quarter of the
            run if that is shorter). Also of p50 and p99
  size      of the table with indexes and of what Penstock keeps about it

The three take turns for as long as the margin before the measuring begins: each reads
again what was consumed within the margin, which is nothing at first.

Each has a late row as well: inserted at the start, in a transaction that commits
after --late. The published loop never finds it if that is longer than the margin.
While such a transaction is open, vacuum is held back for everybody, as by --pin.

Penstock must deliver every row once, the late one too: exit code 3 otherwise. With
--profile portable, and on MariaDB and MySQL, no table is adopted. On MariaDB with MyRocks
(mysql://…?engine=rocksdb) it also shows what RocksDB did for a row: next, seek, and
the steps over what was deleted.`,
		Example: `  bench churn --database-url postgres://postgres@localhost/postgres --duration 10m --pin
  bench churn --duration 10m --late 5m --pin --plot churn.svg --json`,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("late") {
				cfg.Late = min(cfg.Late, cfg.Duration/2)
			}
			return terminal.Usage(cfg.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQueueBench(a, cmd, f, benchChurnTable, benchChurnChart, func(ctx context.Context, b benchPostgres) (measure.ChurnResult, error) {
				cfg.Database, cfg.Pin, cfg.Store = b.database, b.pin, b.setup.Store
				return measure.Churn(ctx, cfg)
			})
		},
	}
	f.register(cmd)
	f.registerPin(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long, of all three together")
	flags.DurationVar(&cfg.Interval, "interval", cfg.Interval, "length of an interval (default a 20th of the duration)")
	flags.IntVar(&cfg.Batch, "batch", cfg.Batch, "rows that are inserted, then consumed")
	flags.DurationVar(&cfg.Margin, "margin", cfg.Margin, "of the low-water marks, behind the newest row consumed")
	flags.DurationVar(&cfg.Late, "late", 5*time.Minute, "when the late row commits, 0 for no such row (default half the duration if that is less)")
	return cmd
}

type churnSide struct {
	name string
	measure.ChurnCurve
}

func churnSides(r measure.ChurnResult) []churnSide {
	all := []churnSide{{"by hand", r.ByHand}, {"adopted", r.Adopted}, {"outbox", r.Outbox}}
	return slices.DeleteFunc(all, func(s churnSide) bool { return len(s.Intervals) == 0 })
}

// churnText describes the run.
func churnText(r measure.ChurnResult) string {
	pinned := "not pinned"
	if r.Pinned {
		pinned = "snapshot pinned"
	}
	return fmt.Sprintf("%s rows in, %s out, for %s, margin %s, %s", terminal.Count(int64(r.Batch)), terminal.Count(int64(r.Batch)), seconds(r.Duration), seconds(r.Margin), pinned)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func benchChurnTable(w io.Writer, r measure.ChurnResult) error {
	fmt.Fprintln(w, churnText(r))
	columns := []terminal.Column{terminal.Right("SECONDS")}
	for _, side := range churnSides(r) {
		columns = append(columns, terminal.Right(strings.ToUpper(side.name)+" ROWS/S"), terminal.Right("P50 MS"), terminal.Right("P99 MS"), terminal.Right("SIZE"))
	}
	t := terminal.NewTable(w, columns...)
	for i, at := range r.Outbox.Intervals {
		row := []string{fmt.Sprintf("%.1f", at.At)}
		for _, side := range churnSides(r) {
			in := side.Intervals[i]
			row = append(row, terminal.Count(int64(in.RowsPerSecond)), ms(in.P50MS), ms(in.P99MS), terminal.Size(in.SizeBytes))
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	f := newFigures(w)
	for _, side := range churnSides(r) {
		f.row(side.name, "%s rows/s; a batch in %s ms, at the end %s ms: flatness %.2f (p50 %.2f, p99 %.2f); %s at most, %s at the end",
			terminal.Count(int64(side.RowsPerSecond)), ms(side.FirstMeanMS), ms(side.LastMeanMS), side.Flatness, side.FlatnessP50, side.FlatnessP99, terminal.Size(side.SizePeak), terminal.Size(side.SizeAtEnd))
	}
	for _, side := range churnSides(r) {
		if late := side.Late; late != nil {
			text := "never delivered"
			if late.Delivered && late.After > 0 {
				text = fmt.Sprintf("delivered %.1f s after that", late.After)
			} else if late.Delivered {
				text = "delivered"
			}
			f.row("late row, "+side.name, "committed after %s, %s", seconds(late.CommittedAt).Round(time.Millisecond), text)
		}
	}
	for _, side := range churnSides(r) {
		if side.RocksDB != nil {
			f.row("RocksDB, "+side.name, "%s per row; in the first quarter %s, in the last %s", callsText(side.RocksDB), callsText(side.FirstRocksDB), callsText(side.LastRocksDB))
		}
	}
	f.row("ratio", "adopted %.2f, outbox %.2f of the rows/s by hand", r.AdoptedOverByHand, r.OutboxOverByHand)
	return f.flush()
}

func benchChurnChart(r measure.ChurnResult) plot.Chart {
	series := func(of func(measure.ChurnInterval) float64) (out []plot.Series) {
		for _, side := range churnSides(r) {
			s := plot.Series{Name: side.name}
			for _, i := range side.Intervals {
				s.Points = append(s.Points, plot.Point{X: i.At, Y: of(i)})
			}
			out = append(out, s)
		}
		return out
	}
	return plot.Chart{
		Title: "Insert a batch, consume a batch", Subtitle: churnText(r),
		Panels: []plot.Panel{
			{X: "seconds", Y: "rows/s", Log: true, Series: series(func(i measure.ChurnInterval) float64 { return i.RowsPerSecond })},
			{X: "seconds", Y: "p50 latency of a batch, ms", Log: true, Series: series(func(i measure.ChurnInterval) float64 { return i.P50MS })},
			{X: "seconds", Y: "size on disk, MiB", Series: series(func(i measure.ChurnInterval) float64 { return float64(i.SizeBytes) / (1 << 20) })},
		},
	}
}
