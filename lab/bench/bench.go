package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/lab/plot"
	"github.com/penstock/penstock/store/portable"
)

// benchFlags are those of every benchmark.
type benchFlags struct {
	sink, plot       string
	asJSON, progress bool
}

// command is the verb of an experiment.
func (e experiment) command(a *app) *cobra.Command {
	f, r := benchFlags{sink: cmp.Or(e.sink, "discard")}, e.new()
	cmd := &cobra.Command{Use: e.name, Short: e.short}
	terminal.Describe(cmd, help)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		r.settings.On(measure.Setup{SinkURL: f.sink})
		err := measure.Valid(r.settings)
		if err == nil && f.plot != "" {
			err = plot.CheckFile(f.plot)
		}
		return terminal.Usage(err)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), e, f, r) }
	flags := cmd.Flags()
	if e.sink != "" {
		flags.StringVar(&f.sink, "sink", e.sink, "amqp://…, nats://…, embedded, kafka://… or the URL of another sink, stdout, discard, or an emulator in this process: "+measure.Emulators())
	}
	if !e.brokers {
		flags.StringVar(&f.plot, "plot", "", "also draw a chart of the intervals to this file, .svg or .png")
	}
	flags.BoolVar(&f.asJSON, "json", false, "one JSON object instead of the table")
	flags.BoolVar(&f.progress, "progress", false, "show progress though stderr is no terminal")
	bind(flags, r.settings)
	return cmd
}

// bench opens the database, runs a benchmark, removes its objects and shows
// the result.
func (a *app) bench(ctx context.Context, e experiment, f benchFlags, r run) (err error) {
	log, err := terminal.NewLogger(a.stderr, cmp.Or(a.logLevel, e.logLevel, "warn"), a.logFormat)
	if err != nil {
		return err
	}
	url, err := a.database(ctx)
	if err != nil {
		return err
	}
	if missing := e.missing(url, f.sink); missing != "" {
		return terminal.Usage(errors.New("bench " + e.name + " " + missing))
	}
	sink, stop, err := measure.StartEmulator(f.sink)
	if err != nil {
		return err
	}
	defer stop()
	a.stderr.Hide(sink)
	if s, ok := r.settings.(interface{ Conns() int }); ok {
		url = withPool(url, s.Conns())
	}
	a.stderr.Hide(url)
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
	if s, ok := r.settings.(interface{ Far() time.Duration }); ok && s.Far() > 0 {
		prefix, rest, found := strings.Cut(url, "postgres")
		if !found || prefix != "" && prefix != "portable+" {
			return terminal.Usage(errors.New("--delay needs PostgreSQL: pass --database-url postgres://…"))
		}
		far, remove, err := measure.Distant("postgres"+rest, s.Far())
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
	r.settings.On(measure.Setup{
		URL: portable.Plain(url), Schema: schema, Store: store, Name: name, SinkURL: sink, Log: log, Progress: progress.Show,
		OpenSink: func(url string) (driver.Sink, error) {
			s, err := drivers.ParseSink(url)
			if err != nil {
				return nil, err
			}
			return s.Open(log)
		},
	})
	result, err := r.measure(ctx)
	progress.Clear()
	if wrong := (*measure.CheckError)(nil); errors.As(err, &wrong) {
		return &terminal.ExitError{Code: terminal.ExitCheck, Err: err}
	}
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(a.unfinished(ctx, f, result), err)
		}
		return err
	}
	return a.show(ctx, e, f, r, result)
}

// show shows a result, and keeps it in the report, if it was measured for one.
func (a *app) show(ctx context.Context, e experiment, f benchFlags, r run, result any) error {
	settings, err := json.Marshal(map[string]any{"settings": settingsOf(r.settings)})
	if err != nil {
		return err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	text = append(append(settings[:len(settings)-1], ','), text[1:]...) // one object of both
	drawn, ok := chart(e.short, result, settingsText(r.settings))
	if s, kept := ctx.Value(sectionKey{}).(*section); kept {
		s.JSON = text
		if ok {
			s.chart = &drawn
		}
		if err := show(s, result); err != nil {
			return err
		}
	}
	if f.plot != "" {
		if !ok {
			return errors.New("this benchmark has no intervals to draw: leave out --plot")
		}
		if err := drawn.WriteFile(f.plot); err != nil {
			return err
		}
	}
	if f.asJSON {
		_, err := fmt.Fprintf(a.stdout, "%s\n", text)
		return err
	}
	fmt.Fprintf(a.stdout, "%s\n\n", settingsText(r.settings))
	return show(a.stdout, result)
}

// unfinished shows what was measured before the run was interrupted, as JSON: a table would have zeros where nothing was measured.
func (a *app) unfinished(ctx context.Context, f benchFlags, result any) error {
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
		if len(v) > 0 {
			return v
		}
	case []any:
		var kept []any
		for _, in := range v {
			if in = withoutZeros(in); in != nil {
				kept = append(kept, in)
			}
		}
		if len(kept) > 0 {
			return kept
		}
	default:
		if v != 0.0 && v != "" && v != false {
			return v
		}
	}
	return nil
}

// withPool sets how many connections a pool may have, unless the URL does.
func withPool(url string, conns int) string {
	if !strings.Contains(url, "://") || strings.Contains(url, "pool_max_conns=") {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return fmt.Sprintf("%s%spool_max_conns=%d", url, separator, conns)
}
