package bench

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/lab/bench"
	"github.com/penstock/penstock/internal/lab/bench/plot"
	"github.com/penstock/penstock/store/portable"
)

// queueBenchFlags are those of the benchmarks of queues.
type queueBenchFlags struct {
	benchFlags
	plot     string
	pin      bool
	portable bool // runs in the portable profile, too
}

func (f *queueBenchFlags) register(cmd *cobra.Command) {
	f.logLevel, f.sink = "warn", "discard"
	flags := cmd.Flags()
	flags.BoolVar(&f.asJSON, "json", false, "one JSON object instead of the table")
	flags.BoolVar(&f.progress, "progress", false, "show progress though stderr is no terminal")
	flags.StringVar(&f.plot, "plot", "", "also draw a chart to this file, .svg or .png")
}

func (f *queueBenchFlags) registerPin(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.pin, "pin", false, "hold a REPEATABLE READ snapshot open throughout")
}

// benchPostgres is what a benchmark of queues runs on.
type benchPostgres struct {
	benchOn
	database bench.Database
	pin      func(context.Context) (release func(), err error) // nil without --pin
}

// runQueueBench runs a benchmark on PostgreSQL and draws its chart.
func runQueueBench[R any](a *cli.App, cmd *cobra.Command, f queueBenchFlags, table func(io.Writer, R) error, chart func(R) plot.Chart,
	run func(context.Context, benchPostgres) (R, error)) error {
	if f.plot != "" {
		if err := plot.CheckFile(f.plot); err != nil {
			return cli.Usage(err)
		}
	}
	url, _, err := a.GivenDatabase()
	if err != nil {
		return err
	}
	if !ofPostgres(url) && !(f.portable && portable.Is(url)) {
		return cli.Usage(errors.New(cmd.CommandPath() + " needs PostgreSQL: pass --database-url postgres://…" + map[bool]string{false: ", and not the portable profile"}[f.portable]))
	}
	return runBench(a, cmd, f.benchFlags, table, func(ctx context.Context, on benchOn) (R, error) {
		b := benchPostgres{benchOn: on, database: bench.Database{URL: portable.Plain(on.url), Schema: on.schema, Name: on.setup.Outbox, Progress: on.setup.Progress}}
		if s, ok := on.setup.Store.(*portable.Store); ok {
			b.database.Portable = s
		}
		if f.pin {
			b.pin = bench.PinPostgres(b.database.URL)
		}
		r, err := run(ctx, b)
		if s, ok := ctx.Value(sectionKey{}).(*section); ok && err == nil {
			c := chart(r)
			s.chart = &c
		}
		if err == nil && f.plot != "" {
			err = chart(r).WriteFile(f.plot)
		}
		return r, err
	})
}
