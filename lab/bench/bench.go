package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
)

// benchFlags are those of every benchmark.
type benchFlags struct {
	sink             string
	asJSON, progress bool
	logLevel         string        // unless --log-level is given
	delay            time.Duration // of each round trip to the database
	conns            int           // of the store's pool on PostgreSQL; 0: the default
}

func (f *benchFlags) register(cmd *cobra.Command, payload *int) {
	f.logLevel = "warn"
	flags := cmd.Flags()
	flags.StringVar(&f.sink, "sink", "embedded", "amqp://…, nats://…, embedded, kafka://… or the URL of another sink, stdout, discard, or an emulator in this process: "+measure.Emulators())
	flags.IntVar(payload, "payload", *payload, "bytes of each payload")
	flags.BoolVar(&f.asJSON, "json", false, "one JSON object instead of the table")
	flags.BoolVar(&f.progress, "progress", false, "show progress though stderr is no terminal")
}

// benchOn is the base of a benchmark.
type benchOn struct {
	setup  measure.Setup
	url    string // of the database
	schema string // of Penstock's tables, on PostgreSQL
}

// runBench opens the database, runs a benchmark, removes its objects and shows
// the result.
func runBench[R any](a *app, cmd *cobra.Command, f benchFlags, table func(io.Writer, R) error, run func(context.Context, benchOn) (R, error)) (err error) {
	ctx := cmd.Context()
	log, err := terminal.NewLogger(a.stderr, cmp.Or(a.logLevel, f.logLevel), a.logFormat)
	if err != nil {
		return err
	}
	url, err := a.database(ctx)
	if err != nil {
		return err
	}
	sink, stop, err := measure.StartEmulator(f.sink)
	if err != nil {
		return err
	}
	defer stop()
	f.sink = sink
	url = withPool(url, f.conns)
	a.stderr.Hide(url)
	a.stderr.Hide(f.sink)
	name, schema := fmt.Sprintf("bench_%08x", rand.Uint32()), a.schema
	if url == "" {
		dir, err := os.MkdirTemp("", "penstock-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		url = "sqlite:" + filepath.Join(dir, "bench.db")
	}
	private := schema == "" && !strings.HasPrefix(url, "sqlite:")
	if private {
		schema = "penstock_" + name
	}
	if f.delay > 0 {
		prefix, rest, found := strings.Cut(url, "postgres")
		if !found || prefix != "" && prefix != "portable+" {
			return terminal.Usage(errors.New("--delay needs PostgreSQL: pass --database-url postgres://…"))
		}
		far, remove, err := measure.Distant("postgres"+rest, f.delay)
		if err != nil {
			return err
		}
		defer remove()
		url = prefix + far
	}
	store, err := drivers.OpenStore(ctx, url, schema, log)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if s, ok := store.(driver.SchemaDropper); ok && private {
		defer func() { err = errors.Join(err, s.DropSchema(context.WithoutCancel(ctx))) }()
	}
	progress := terminal.NewProgress(a.stderr, f.progress)
	result, err := run(ctx, benchOn{url: url, schema: schema, setup: measure.Setup{
		Store: store, Outbox: name, SinkURL: f.sink, Log: log, Progress: progress.Show,
		OpenSink: func(url string) (driver.Sink, error) {
			s, err := drivers.ParseSink(url)
			if err != nil {
				return nil, err
			}
			return s.Open(log)
		},
	}})
	progress.Clear()
	if wrong := (*measure.CheckError)(nil); errors.As(err, &wrong) {
		return &terminal.ExitError{Code: terminal.ExitCheck, Err: err}
	}
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(unfinished(ctx, a, f, result), err)
		}
		return err
	}
	if err := keep(ctx, result, table); err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(a.stdout).Encode(result)
	}
	return table(a.stdout, result)
}

// measurable is a pointer to the configuration of a measurement.
type measurable[C any] interface {
	*C
	On(measure.Setup)
}

// measures is the RunE of a measurement that needs nothing but a Setup.
func measures[C, R any, P measurable[C]](a *app, f *benchFlags, cfg P, table func(io.Writer, R) error, run func(context.Context, C) (R, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return runBench(a, cmd, *f, table, func(ctx context.Context, b benchOn) (R, error) {
			cfg.On(b.setup)
			return run(ctx, *cfg)
		})
	}
}

// unfinished shows what was measured before the run was interrupted, as JSON: a table would have zeros where nothing was measured.
func unfinished(ctx context.Context, a *app, f benchFlags, result any) error {
	text, err := json.Marshal(result)
	var measured map[string]any
	if err == nil {
		err = json.Unmarshal(text, &measured)
	}
	if err != nil {
		return fmt.Errorf("what was measured cannot be shown: %w", err)
	}
	measured, _ = withoutZeros(measured).(map[string]any)
	if s, ok := ctx.Value(sectionKey{}).(*section); ok {
		s.JSON, _ = json.Marshal(measured)
	}
	if f.asJSON {
		return json.NewEncoder(a.stdout).Encode(measured)
	}
	fmt.Fprintln(a.stderr, "Interrupted. What was measured until then:")
	out := json.NewEncoder(a.stdout)
	out.SetIndent("", "  ")
	return out.Encode(measured)
}

// withoutZeros leaves out what a benchmark did not come to; nil if that is all.
func withoutZeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, in := range v {
			if in = withoutZeros(in); in == nil {
				delete(v, name)
			} else {
				v[name] = in
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		var kept []any
		for _, in := range v {
			if in = withoutZeros(in); in != nil {
				kept = append(kept, in)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case float64:
		if v == 0 {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}

// withPool sets how many connections a pool may have, unless the URL does.
func withPool(url string, conns int) string {
	if conns == 0 || !strings.Contains(url, "://") || strings.Contains(url, "pool_max_conns=") {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return fmt.Sprintf("%s%spool_max_conns=%d", url, separator, conns)
}

// valid has a verb check the settings of its measurement before it runs.
func valid(cfg interface{ Validate() error }) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error { return terminal.Usage(cfg.Validate()) }
}

// orNegative hands a zero on as -1: for the benchmark zero means the default.
func orNegative[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// figures is a table of names and measurements.
type figures struct {
	t  *tabwriter.Writer
	to io.Writer
}

func newFigures(w io.Writer) figures { return figures{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), w} }

func (f figures) row(name, format string, args ...any) {
	if page, ok := f.to.(terminal.Cells); ok {
		page.Cells(nil, [][]string{{name, fmt.Sprintf(format, args...)}})
		return
	}
	fmt.Fprintf(f.t, "%s\t"+format+"\n", append([]any{name}, args...)...)
}

func (f figures) flush() error { return f.t.Flush() }

// ratios is a median with its spread, if it was measured more than once.
func ratios(median float64, all []float64) string {
	if len(all) < 2 {
		return fmt.Sprintf("%.2f", median)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f in %d pairs)", median, slices.Min(all), slices.Max(all), len(all))
}

// checked compares arrivals with the expected ones.
func checked(c measure.Check) string {
	return fmt.Sprintf("%d lost, %d out of order, %d duplicates, as the %s saw it", c.Lost, c.OutOfOrder, c.Duplicates, c.By)
}
