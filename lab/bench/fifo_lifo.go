package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

func fifoLifoCommand(a *app) *cobra.Command {
	f, cfg := queueBenchFlags{portable: true, mysql: true}, measure.DefaultFifoLifo
	arrivals := true
	cmd := &cobra.Command{
		Use:   "fifo-lifo",
		Short: "Measure whether a queue slows down as it is used",
		Long: `Let ten workers compete for one job per transaction while one enqueuer goes on,
first on a queue of Penstock's, then on the hand-written table and statements of
the experiment "Queuing tables" (YugabyteDB, 2024), each for --duration from a
fresh preload:

  jobs/s, latency  of whole transactions, per --interval
  flatness         the p99 of the last tenth of the run over that of the first;
                   the run's first second is left out
  CPU              cores that were busy on average: of this client, of PostgreSQL if
                   it runs on this machine, and in all. A client that takes what the
                   server leaves is what bounds the figure
  ratio            Penstock's average jobs/s over the hand-written queue's;
                   ratio_at_start is that of the first intervals, ratio_to_start
                   Penstock's average over the other's first interval
  size             of the tables with indexes, per interval. With --pin, segments
                   that are truncated show that space comes back all the same

One runs after the other, and not in turns, so that each runs without a pause, as
published: a pause would give vacuum time to clear up, and the other's pages would
push its own out of memory. The snapshot of --pin is taken before the first job
and covers both.

A run whose queue is empty ends there, and says so: polling an empty queue would
measure nothing. A poll that finds nothing while there are jobs (others have
locked them) is counted apart and is in no figure. Afterwards jobs in, out and
left must agree and none may have come twice: exit code 3 otherwise.

--mode call is one autocommitted call of dequeue_NAME, --mode tx is begin,
dequeue_NAME, commit. The hand-written transaction has four round trips: begin, select … for
update skip locked limit 1, delete, commit. With --profile portable, and on MariaDB
and MySQL, a job is a claim and an ack.

On MariaDB with MyRocks (mysql://…?engine=rocksdb) it also shows what RocksDB did for
a dequeue: next and seek, as ROCKSDB_NUMBER_DB_NEXT and _SEEK count them, and the
steps over what was deleted, which these do not count.`,
		Example: `  bench fifo-lifo --database-url postgres://postgres@localhost/postgres --pin
  bench fifo-lifo --order lifo --rate 0 --pin --plot lifo.svg
  bench fifo-lifo --arrivals=false --preload 1000000 --duration 2m --json
  bench fifo-lifo --database-url 'mysql://root@localhost/?engine=rocksdb'
  bench fifo-lifo --order lifo --dequeue-rate 100 --duration 1h --preload 6000  # as published`,
		PreRunE: func(*cobra.Command, []string) error {
			if cfg.Rate < 0 {
				return terminal.Usage(fmt.Errorf("--rate is %d, expected 0 (unlimited) or more; for no arrivals there is --arrivals=false", cfg.Rate))
			}
			if !arrivals {
				cfg.Rate = -1
			}
			return terminal.Usage(cfg.Validate())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runQueueBench(a, cmd, f, benchFifoLifoTable, benchFifoLifoChart, func(ctx context.Context, b benchPostgres) (measure.FifoLifoResult, error) {
				cfg.Database, cfg.Pin = b.database, b.pin
				return measure.FifoLifo(ctx, cfg)
			})
		},
	}
	f.register(cmd)
	f.registerPin(cmd)
	flags := cmd.Flags()
	flags.StringVar((*string)(&cfg.Order), "order", string(cfg.Order), "fifo or lifo")
	flags.StringVar(&cfg.Mode, "mode", cfg.Mode, "Penstock's transaction: call or tx")
	flags.IntVar(&cfg.Workers, "workers", cfg.Workers, "dequeuers")
	flags.IntVar(&cfg.Preload, "preload", cfg.Preload, "jobs there are at the start")
	flags.IntVar(&cfg.Rate, "rate", cfg.Rate, "jobs per second that arrive, 0 for as many as one connection can")
	flags.BoolVar(&arrivals, "arrivals", arrivals, "false: no enqueuer, only the preload")
	flags.IntVar(&cfg.DequeueRate, "dequeue-rate", cfg.DequeueRate, "jobs per second of all dequeuers together, 0 for as many as they can")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long each queue is measured")
	flags.DurationVar(&cfg.Interval, "interval", cfg.Interval, "length of an interval (default a 20th of the duration)")
	flags.IntVar(&cfg.PayloadBytes, "payload", cfg.PayloadBytes, "bytes of each payload; there are none in the published run")
	return cmd
}

// fifoLifoText describes the run.
func fifoLifoText(r measure.FifoLifoResult) string {
	arrivals := fmt.Sprintf("%s arriving", terminal.Rate(float64(r.Rate)))
	switch {
	case r.Rate < 0:
		arrivals = "none arriving"
	case r.Rate == 0:
		arrivals = "arrivals unlimited"
	}
	pinned := "not pinned"
	if r.Pinned {
		pinned = "snapshot pinned"
	}
	return fmt.Sprintf("%s, %d workers, mode %s, %s jobs at the start, %s, %s", r.Order, r.Workers, r.Mode, terminal.Count(int64(r.Preload)), arrivals, pinned)
}

func benchFifoLifoTable(w io.Writer, r measure.FifoLifoResult) error {
	fmt.Fprintln(w, fifoLifoText(r))
	t := terminal.NewTable(w, terminal.Right("SECONDS"), terminal.Right("JOBS/S"), terminal.Right("P50 MS"), terminal.Right("P99 MS"), terminal.Right("SIZE"),
		terminal.Right("HAND-WRITTEN JOBS/S"), terminal.Right("P50 MS"), terminal.Right("P99 MS"), terminal.Right("SIZE"))
	cells := func(c measure.Curve, i int) []string {
		if i >= len(c.Intervals) {
			return []string{"", "", "", ""}
		}
		at := c.Intervals[i]
		return []string{terminal.Count(int64(at.JobsPerSecond)), ms(at.P50MS), ms(at.P99MS), terminal.Size(at.SizeBytes)}
	}
	for i := range max(len(r.Intervals), len(r.Baseline.Intervals)) {
		at := 0.0
		for _, c := range []measure.Curve{r.Curve, r.Baseline} {
			if i < len(c.Intervals) {
				at = max(at, c.Intervals[i].At)
			}
		}
		t.Row(append(append([]string{fmt.Sprintf("%.1f", at)}, cells(r.Curve, i)...), cells(r.Baseline, i)...)...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	f := newFigures(w)
	for _, side := range []struct {
		name string
		measure.Curve
	}{{"Penstock", r.Curve}, {"hand-written", r.Baseline}} {
		ended := ""
		if side.Drained {
			ended = ", when it was empty"
		}
		f.row(side.name, "%s jobs/s; %s jobs in, %s out in %.1f s%s; p99 %s ms, then %s ms: flatness %.2f; %s at most, %s at the end",
			terminal.Count(int64(side.JobsPerSecond)), terminal.Count(side.Enqueued), terminal.Count(side.Dequeued), side.Seconds, ended,
			ms(side.FirstP99MS), ms(side.LastP99MS), side.Flatness, terminal.Size(side.SizePeak), terminal.Size(side.SizeAtEnd))
	}
	if r.RocksDB != nil {
		at := func(c measure.Curve) string {
			first, last := "nothing", "nothing"
			for _, i := range c.Intervals {
				if i.RocksDB != nil {
					if last = callsText(i.RocksDB); first == "nothing" {
						first = last
					}
				}
			}
			return fmt.Sprintf("%s per dequeue; at first %s, at the end %s", callsText(c.RocksDB), first, last)
		}
		f.row("RocksDB, Penstock", "%s", at(r.Curve))
		f.row("RocksDB, hand-written", "%s", at(r.Baseline))
	}
	for _, side := range []struct {
		name string
		measure.CPU
	}{{"CPU, Penstock", r.CPU}, {"CPU, hand-written", r.Baseline.CPU}} {
		f.row(side.name, "client %.2f, PostgreSQL %.2f, all together %.2f of %d cores", side.Client, side.Server, side.Machine, side.Cores)
	}
	f.row("ratio", "%.2f of the hand-written queue's jobs/s, %.2f at the start; %.2f of what it did at its start", r.Ratio, r.RatioAtStart, r.RatioToStart)
	f.row("segments", "%d truncated while it ran", r.SegmentsTruncated)
	return f.flush()
}

// ms writes milliseconds to three digits.
func ms(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func benchFifoLifoChart(r measure.FifoLifoResult) plot.Chart {
	series := func(of func(measure.Interval) float64) []plot.Series {
		var out []plot.Series
		for _, side := range []struct {
			name string
			measure.Curve
		}{{"Penstock", r.Curve}, {"hand-written table", r.Baseline}} {
			s := plot.Series{Name: side.name}
			for _, i := range side.Intervals {
				s.Points = append(s.Points, plot.Point{X: i.At, Y: of(i)})
			}
			out = append(out, s)
		}
		return out
	}
	return plot.Chart{
		Title: "One job per transaction, workers competing", Subtitle: fifoLifoText(r),
		Panels: []plot.Panel{
			{X: "seconds", Y: "jobs/s", Series: series(func(i measure.Interval) float64 { return i.JobsPerSecond })},
			{X: "seconds", Y: "p99 latency, ms", Log: true, Series: series(func(i measure.Interval) float64 { return i.P99MS })},
			{X: "seconds", Y: "size on disk, MiB", Series: series(func(i measure.Interval) float64 { return float64(i.SizeBytes) / (1 << 20) })},
		},
	}
}
