package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
)

// experiment is one of bench all.
type experiment struct {
	name, args, quick string // the verb; its flags, and those of --quick
	command           func(*app) *cobra.Command
	brokers           bool // takes any sink; RabbitMQ's needs an amqp one
	ratios            []headline
}

// headline is a figure of an experiment's JSON that the report begins with.
type headline struct{ is, path, byHand, published string }

const ofBroker = "of the broker, fed from memory"

var experiments = []experiment{
	{"relay", "", "--messages 30000 --latency-for 4s --idle-for 2s", relayCommand, true, []headline{{"the relay's rate, " + ofBroker, "ratio", "", ""}}},
	{"poison", "--repeat 3", "--messages 10000 --repeat 1", poisonCommand, true, []headline{{"healthy keys next to one that is always refused, of the same without", "ratio", "", ""}}},
	{"park", "", "--messages 10000 --keys 200", parkCommand, true, []headline{{"parked messages drain, of a normal drain", "ratio", "", ""}}},
	{"outage", "", "--before 2s --outage 5s --ceiling-of 10000", outageCommand, true, []headline{{"the backlog of an outage drains, " + ofBroker, "runs.0.ratio", "", ""}}},
	{"webhook", "--repeat 3", "--messages 10000", webhookCommand, false, []headline{{"requests, of net/http from memory", "ratio", "", ""}}},
	{"fifo-lifo", "--pin", "--pin --preload 200000 --duration 6s", fifoLifoCommand, false, []headline{
		{"p99 of the last tenth over the first, snapshot pinned", "flatness", "baseline.flatness", ""}, {"jobs/s, of the hand-written queue's", "ratio", "", ""}}},
	{"tombstones", "--pin", "--pin --events 100000 --fetches 50", tombstonesCommand, false, []headline{{"the next event behind many that are gone, of a fresh one's time", "worst_ratio", "cases.0.naive.ratio", ""}}},
	{"queue", "--batches 1,10,100 --workers 1,10", "--batches 1,100 --workers 10 --jobs 8000 --longest 500ms", queueCommand, false, nil},
	{"queue", "--steady 2000", "--steady 1000 --duration 6s", queueCommand, false, []headline{{"ms from commit to handler, p99", "steady.latency_ms.p99", "steady.by_hand.latency_ms.p99", ""}}},
	{"processor", "", "--rows 20000 --duration 2s", processorCommand, false, []headline{
		{"the adopted table, times the published baseline by hand", "ratios.factor_over_baseline", "ratios.best_rung_over_baseline", "24"}, {"the adopted table, " + ofBroker, "ratios.adopted_over_ceiling", "ratios.best_rung_over_ceiling", ""}}},
	{"churn", "--duration 5m --pin", "--duration 12s --margin 1s --pin", churnCommand, false, []headline{{"a batch at the end over one at the start, snapshot pinned, adopted", "adopted.flatness", "by_hand.flatness", ""}}},
	{"buffering", "", "--publishes 8000 --delays 1ms --duration 500ms --callers 1,8,64", bufferingCommand, false, []headline{
		{"publishing one by one through the buffer, of one statement", "ratio_to_bulk", "", ""}, {"the same, times one INSERT each", "speedup_over_single", "", ""}}},
}

func allCommand(a *app) *cobra.Command {
	var (
		dir, sink string
		quick     bool
		only      []string
	)
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all benchmarks and write one page about them",
		Long: `Run all benchmarks, one after the other, and show their tables. With --report they are
also in DIR/index.html, one page that needs nothing else: charts, tables, the published
figures where there are some, and the facts of this machine; and in DIR/report.json. Both
are written anew after each benchmark.

Benchmarks of queues need --database-url postgres://…, the ladder of outbox processors
RabbitMQ as well (--sink amqp://…). What is missing is left out, and the page says so.
--quick takes less than five minutes, and its figures vary more; without it, it takes half an hour.`,
		Example: `  bench all --quick --report report
  bench all --database-url postgres://postgres@localhost/postgres --sink amqp://guest:guest@localhost/ --report report
  bench all --run relay --run 'webhook --keys 50' --report report`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := choose(only, quick)
			if err != nil {
				return terminal.Usage(err)
			}
			return all(cmd.Context(), a, chosen, sink, dir)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "report", "", "folder for index.html and report.json; it is made if it is not there")
	flags.BoolVar(&quick, "quick", false, "small ones, within five minutes")
	flags.StringVar(&sink, "sink", "embedded", "amqp://…, nats://…, embedded, kafka://…, kfake or discard")
	flags.StringArrayVar(&only, "run", nil, "only this benchmark, with its own flags or those given behind it; may be repeated")
	return cmd
}

// choose gives each experiment that is to run the flags that it gets, as args.
func choose(only []string, quick bool) (chosen []experiment, err error) {
	if len(only) == 0 {
		for _, e := range experiments {
			only = append(only, e.name)
		}
		only = slices.Compact(only) // queue comes twice
	}
	for _, one := range only {
		name, args, given := strings.Cut(strings.TrimSpace(one), " ")
		known := false
		for _, e := range experiments {
			if e.name != name || known && given {
				continue
			}
			if quick {
				e.args = e.quick
			}
			if given {
				e.args = args
			}
			known = true
			chosen = append(chosen, e)
		}
		if !known {
			return nil, fmt.Errorf("%q is no benchmark: bench --help lists them", name)
		}
	}
	return chosen, nil
}

// ofPostgres: the database is PostgreSQL with the tables and functions of its store.
func ofPostgres(url string) bool {
	return url != "" && !strings.HasPrefix(url, "sqlite:") && !strings.HasPrefix(url, "portable+")
}

// why an experiment cannot run here; empty if it can.
func (e experiment) missing(url, sink string) string {
	if !e.brokers && e.name != "webhook" && !ofPostgres(url) {
		return "it needs PostgreSQL: --database-url postgres://…"
	}
	if e.name == "processor" && !strings.HasPrefix(sink, "amqp") {
		return "it needs RabbitMQ: --sink amqp://…"
	}
	return ""
}

// all runs experiments. One that fails ends none of the others.
func all(ctx context.Context, a *app, chosen []experiment, sink, dir string) error {
	url, err := a.database(ctx)
	if err != nil {
		return err
	}
	scheme, _, _ := strings.Cut(sink, ":")
	r := report{Began: time.Now().UTC().Truncate(time.Second), Machine: append(measure.Machine(ctx, url), measure.Fact{Name: "Sink", Is: scheme})}
	var failed []error
	for _, e := range chosen {
		s := &section{Name: "bench " + strings.TrimSpace(e.name+" "+e.args), ratios: e.ratios, Left: e.missing(url, sink)}
		r.Sections = append(r.Sections, s)
		fmt.Fprintf(a.stdout, "\n%s\n\n", s.Name)
		if s.Left != "" {
			fmt.Fprintf(a.stdout, "left out: %s\n", s.Left)
		} else {
			if err := s.run(ctx, a, e, sink); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			}
		}
		r.Took = time.Since(r.Began).Round(time.Second).String()
		if dir != "" {
			if err := r.write(dir); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// run runs the verb of an experiment.
func (s *section) run(ctx context.Context, a *app, e experiment, sink string) error {
	cmd, args := e.command(a), strings.Fields(e.args)
	if e.brokers || e.name == "processor" {
		args = append(args, "--sink", sink)
	}
	s.Short, s.Long = cmd.Short, cmd.Long
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	began := time.Now()
	err := cmd.ExecuteContext(context.WithValue(ctx, sectionKey{}, s))
	if s.Seconds = time.Since(began).Seconds(); err != nil {
		s.Failed = err.Error()
	}
	return err
}

type sectionKey struct{}

// keep puts a benchmark's result into the report, if it runs for one.
func keep[R any](ctx context.Context, result R, table func(io.Writer, R) error) error {
	s, ok := ctx.Value(sectionKey{}).(*section)
	if !ok {
		return nil
	}
	if err := table(s, result); err != nil {
		return err
	}
	var err error
	s.JSON, err = json.Marshal(result)
	return err
}

// at is the number at a path of names and indices, if there is one.
func at(result any, path string) (float64, bool) {
	for _, name := range strings.Split(path, ".") {
		switch in := result.(type) {
		case map[string]any:
			result = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return 0, false
			}
			result = in[i]
		}
	}
	n, ok := result.(float64)
	return n, ok
}
