package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
)

type benchQueueFlags struct {
	queueBenchFlags
	ops                                []string
	batches, workers                   []int
	jobs, payload, steady, concurrency int
	longest, duration                  time.Duration
}

// queueFigures is the output of `bench queue`: cells, or with --steady one run.
type queueFigures struct {
	*measure.QueueResult
	Steady *measure.SteadyQueueResult `json:"steady,omitempty"`
}

func queueCommand(a *app) *cobra.Command {
	var f benchQueueFlags
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Measure how many messages and jobs go in, and jobs out",
		Long: `Measure jobs per second, each combination of operation, batch size and number of
workers on a new queue and, in the same run, on a hand-written table with a primary
key:

  publish   plain INSERT into an outbox      by hand: the same into a table with the
  insert    plain INSERT into the queue      same columns and defaults, in turns
  enqueue   _NAME.enqueue, enqueue_many
  business  pgbench's TPC-B-like transaction without the message, and with an INSERT of
            with one message published       it into a plain table, in turns
  dequeue   dequeue_NAME, dequeue of more    by hand: DELETE … USING (SELECT …
  claim     claim, or ack_claim of more,     FOR UPDATE SKIP LOCKED LIMIT n) … RETURNING
            then ack of all                  with leases: UPDATE … WHERE id IN (SELECT …
                                             FOR UPDATE SKIP LOCKED LIMIT n) RETURNING,
                                             then DELETE
  work      work.Run with its defaults and   by hand: four connections, each
            a handler that does nothing      DELETE … WHERE id IN (SELECT …
                                             LIMIT 100) RETURNING in a loop; with
                                             leases UPDATE and DELETE

A cell ends after --jobs or --longest. Every call is a transaction of its own; of
single jobs there is also mode tx, within begin and commit, and of claim mode carried:
each claim ends the jobs of the last one, in one call. Of work there is one cell,
which is of Go programs, and a backlog of --jobs that they drain, five times in turns. The message of the
business is one more round trip (tx), or goes with the commit (pipelined); jobs/s are
transactions. What takes turns does so every 200 ms, ten times at least, and the
ratio is the median of theirs. Every other cell begins with the hand-written table. Jobs in, out and left must agree: exit code 3
otherwise.

--steady RATE measures something else: one job per transaction at that rate, and
Go workers (work.Run). Latency is from the commit's answer to the handler,
without the first tenth of the run, and CPU that of the whole machine, whatever runs
on it: producers, database, workers, and everybody else. What the same producers take
alone, one connection with one INSERT per transaction into a hand-written table, is measured
first, for a sixth of the time, and shown next to it: no queue takes less. Then comes the
hand-written loop: one connection that takes up to a hundred jobs at a time, and
pauses for 1.75 ms when there are none. Producers and workers share one Go processor
(GOMAXPROCS); they need a third.`,
		Example: `  bench queue --database-url postgres://postgres@localhost/postgres
  bench queue --ops dequeue,claim --batches 100 --workers 10 --json
  bench queue --ops publish,enqueue,business --batches 1 --workers 8 --longest 20s
  bench queue --steady 2000 --duration 50s`,
		RunE: func(cmd *cobra.Command, _ []string) error { return benchQueue(a, cmd, f) },
	}
	f.register(cmd)
	f.registerPin(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.ops, "ops", measure.QueueOps, "what to measure")
	flags.IntSliceVar(&f.batches, "batches", []int{1, 10, 100, 1000}, "jobs at a time")
	flags.IntSliceVar(&f.workers, "workers", []int{1, 10, 50}, "connections that work at a time")
	flags.IntVar(&f.jobs, "jobs", 100_000, "jobs of a cell, at most")
	flags.DurationVar(&f.longest, "longest", 2*time.Second, "duration of a cell, at most")
	flags.IntVar(&f.payload, "payload", 200, "bytes of each payload")
	flags.IntVar(&f.steady, "steady", 0, "measure latency at this many jobs per second instead")
	flags.IntVar(&f.concurrency, "concurrency", 10, "handlers at a time, with --steady")
	flags.DurationVar(&f.duration, "duration", 30*time.Second, "how long, with --steady")
	return cmd
}

func benchQueue(a *app, cmd *cobra.Command, f benchQueueFlags) error {
	cfg := measure.QueueConfig{Ops: f.ops, Batches: f.batches, Workers: f.workers, Jobs: orNegative(f.jobs), Longest: orNegative(f.longest), PayloadBytes: orNegative(f.payload)}
	steady := measure.SteadyQueueConfig{Rate: f.steady, For: orNegative(f.duration), Concurrency: orNegative(f.concurrency), PayloadBytes: orNegative(f.payload)}
	check := cfg.Validate
	if cmd.Flags().Changed("steady") {
		steady.Rate = orNegative(f.steady)
		check = steady.Validate
		if f.pin {
			return terminal.Usage(errors.New("--pin goes with cells, not with --steady"))
		}
	} else if cmd.Flags().Changed("duration") || cmd.Flags().Changed("concurrency") {
		return terminal.Usage(errors.New("--duration and --concurrency go with --steady RATE; cells have --longest and --workers"))
	} else if f.plot != "" && len(slices.Compact(slices.Sorted(slices.Values(f.batches)))) < 2 {
		return terminal.Usage(errors.New("--plot draws a curve over batch sizes: pass at least two with --batches"))
	}
	if err := check(); err != nil {
		return terminal.Usage(err)
	}
	return runQueueBench(a, cmd, f.queueBenchFlags, benchQueueTable, benchQueueChart, func(ctx context.Context, b benchPostgres) (queueFigures, error) {
		store, ok := b.setup.Store.(driver.QueueStore)
		if !ok {
			return queueFigures{}, errors.New("this store has no queues")
		}
		if steady.Rate == 0 {
			cfg.Database, cfg.Store, cfg.Pin = b.database, store, b.pin
			r, err := measure.Queue(ctx, cfg)
			return queueFigures{QueueResult: &r}, err
		}
		steady.Database, steady.Store = b.database, store
		r, err := measure.SteadyQueue(ctx, steady)
		return queueFigures{Steady: &r}, err
	})
}

func benchQueueTable(w io.Writer, r queueFigures) error {
	if s := r.Steady; s != nil {
		t := newFigures(w)
		t.row("jobs", "%d/s asked for, %s enqueued; %d handlers", s.Rate, terminal.Rate(s.Enqueued), s.Concurrency)
		for _, one := range []struct {
			suffix string
			*measure.SteadyQueueResult
		}{{"", s}, {" by hand", s.ByHand}} {
			l := one.LatencyMS
			t.row("latency"+one.suffix, "p50 %s ms, p99 %s ms, max %s ms from commit to handler, of %s jobs", ms(l.P50), ms(l.P99), ms(l.Max), terminal.Count(int64(l.Messages)))
			if one.CPUSecondsPer100k != nil {
				t.row("CPU"+one.suffix, "%.1f s of the whole machine per 100,000 jobs (%.1f s not idle)", *one.CPUSecondsPer100k, *one.NotIdleSecondsPer100k)
			}
		}
		if s.ProducersCPUSecondsPer100k != nil {
			t.row("CPU", "%.1f s of it producers alone", *s.ProducersCPUSecondsPer100k)
		}
		return t.flush()
	}
	t := terminal.NewTable(w, terminal.Left("OPERATION"), terminal.Left("MODE"), terminal.Right("BATCH"), terminal.Right("WORKERS"), terminal.Right("JOBS/S"), terminal.Right("BY HAND"), terminal.Right("RATIO"), terminal.Right("WITH LEASES"), terminal.Right("RATIO"), terminal.Right("PLAIN INSERT"), terminal.Right("RATIO"))
	for _, c := range r.Cells {
		row := []string{c.Op, c.Mode, terminal.Count(int64(c.Batch)), fmt.Sprint(c.Workers), terminal.Count(int64(c.Penstock))}
		for _, compared := range [][2]float64{{c.Baseline, c.Ratio}, {c.Leased, c.RatioLeased}, {c.Plain, c.RatioPlain}} {
			if compared[0] > 0 {
				row = append(row, terminal.Count(int64(compared[0])), fmt.Sprintf("%.2f", compared[1]))
			} else {
				row = append(row, "", "")
			}
		}
		t.Row(row...)
	}
	return t.Flush()
}

// benchQueueChart has a panel per operation: jobs/s over batch sizes, at the number
// of workers that is nearest to ten.
func benchQueueChart(r queueFigures) plot.Chart {
	if r.Steady != nil {
		return benchSteadyChart(*r.Steady)
	}
	workers := r.Cells[0].Workers
	for _, c := range r.Cells {
		if abs(c.Workers-10) < abs(workers-10) {
			workers = c.Workers
		}
	}
	chart := plot.Chart{Title: "Jobs in and out of a queue", Subtitle: fmt.Sprintf("%d workers, payloads of %d bytes", workers, r.PayloadBytes)}
	for _, c := range r.Cells {
		if c.Workers != workers || c.Mode != measure.ModeCall || c.Op == measure.OpWork { // which is not a curve
			continue
		}
		if title := c.Op + ", jobs/s"; len(chart.Panels) == 0 || chart.Panels[len(chart.Panels)-1].Y != title {
			chart.Panels = append(chart.Panels, plot.Panel{X: "jobs at a time", Y: title, Log: true, Series: []plot.Series{{Name: "Penstock"}, {Name: "by hand"}}})
		}
		p := &chart.Panels[len(chart.Panels)-1]
		at := float64(len(p.Ticks))
		p.Ticks = append(p.Ticks, terminal.Count(int64(c.Batch)))
		for i, y := range []float64{c.Penstock, c.Baseline} {
			p.Series[i].Points = append(p.Series[i].Points, plot.Point{X: at, Y: y})
		}
	}
	return chart
}

// benchSteadyChart has latency and rate over time.
func benchSteadyChart(r measure.SteadyQueueResult) plot.Chart {
	p50, p99, jobs := plot.Series{Name: "p50"}, plot.Series{Name: "p99"}, plot.Series{Name: "jobs/s"}
	for _, i := range r.Intervals {
		p50.Points = append(p50.Points, plot.Point{X: i.At, Y: i.P50MS})
		p99.Points = append(p99.Points, plot.Point{X: i.At, Y: i.P99MS})
		jobs.Points = append(jobs.Points, plot.Point{X: i.At, Y: i.JobsPerSecond})
	}
	return plot.Chart{
		Title: "From commit to handler, at a steady rate", Subtitle: fmt.Sprintf("%s jobs/s, one per transaction, %d handlers", terminal.Count(int64(r.Rate)), r.Concurrency),
		Panels: []plot.Panel{
			{X: "seconds", Y: "latency, ms", Log: true, Series: []plot.Series{p50, p99, {Name: jobs.Name}}},
			{X: "seconds", Y: "jobs/s", Series: []plot.Series{{}, {}, jobs}},
		},
	}
}

func abs(n int) int { return max(n, -n) }
