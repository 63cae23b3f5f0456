package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
)

// queueBenchFlags are those of the benchmarks of queues.
type queueBenchFlags struct {
	benchFlags
	plot     string
	pin      bool
	portable bool // also runs in the portable profile
	mysql    bool // and on MariaDB
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

// callsText has the counts of RocksDB.
func callsText(c *measure.CallsPerJob) string {
	if c == nil {
		return "nothing"
	}
	return fmt.Sprintf("%.2f next, %.1f seek, %.1f skipped", c.Next, c.Seek, c.Skipped)
}

// benchPostgres is the base of a benchmark of queues.
type benchPostgres struct {
	benchOn
	database measure.Database
	pin      func(context.Context) (release func(), err error) // nil without --pin
}

// runQueueBench runs a benchmark on PostgreSQL, or on another database that it takes, and draws its chart.
func runQueueBench[R any](a *app, cmd *cobra.Command, f queueBenchFlags, table func(io.Writer, R) error, chart func(R) plot.Chart,
	run func(context.Context, benchPostgres) (R, error)) error {
	if f.plot != "" {
		if err := plot.CheckFile(f.plot); err != nil {
			return terminal.Usage(err)
		}
	}
	url, err := a.database(cmd.Context())
	if err != nil {
		return err
	}
	ofMySQL := strings.HasPrefix(url, "mysql:")
	if !ofPostgres(url) && !(f.portable && portable.Is(url)) && !(f.mysql && ofMySQL) {
		return terminal.Usage(errors.New(cmd.CommandPath() + " needs PostgreSQL: pass --database-url postgres://…" + map[bool]string{true: " or mysql://…"}[f.mysql] + map[bool]string{false: ", and not the portable profile"}[f.portable]))
	}
	return runBench(a, cmd, f.benchFlags, table, func(ctx context.Context, on benchOn) (R, error) {
		b := benchPostgres{benchOn: on, database: measure.Database{URL: portable.Plain(on.url), Schema: on.schema, Name: on.setup.Outbox, Progress: on.setup.Progress}}
		b.pin = measure.PinPostgres(b.database.URL)
		switch s := on.setup.Store.(type) {
		case *portable.Store:
			b.database.Plain = s
		case *mysql.Store:
			b.database.Plain, b.pin = s, measure.PinMySQL(on.url)
		}
		if !f.pin {
			b.pin = nil
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
