package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/lab/measure"
	"github.com/penstock/penstock/store/portable"
)

func allCommand(a *app) *cobra.Command {
	var (
		dir, sink string
		quick     bool
		only      []string
	)
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all benchmarks and write one page about them",
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := choose(only, quick)
			if err != nil {
				return terminal.Usage(err)
			}
			return all(cmd.Context(), a, chosen, sink, dir)
		},
	}
	terminal.Describe(cmd, help)
	flags := cmd.Flags()
	flags.StringVar(&dir, "report", "", "folder for index.html and report.json; it is made if it is not there")
	flags.BoolVar(&quick, "quick", false, "small ones, within five minutes")
	flags.StringVar(&sink, "sink", "embedded", "amqp://…, nats://…, embedded, kafka://…, kfake or discard")
	flags.StringArrayVar(&only, "run", nil, "only this benchmark, with its own flags or those given behind it; may be repeated")
	return cmd
}

// choose gives each experiment that is to run the flags that it gets, as all.
func choose(only []string, quick bool) (chosen []experiment, err error) {
	if len(only) == 0 {
		for _, e := range experiments {
			only = append(only, e.name)
		}
	}
	for _, one := range only {
		name, args, given := strings.Cut(strings.TrimSpace(one), " ")
		at := slices.IndexFunc(experiments, func(e experiment) bool { return e.name == name })
		if at < 0 {
			return nil, fmt.Errorf("%q is no benchmark: bench --help lists them", name)
		}
		e := experiments[at]
		if quick {
			e.all = e.quick
		}
		if given {
			e.all = args
		}
		chosen = append(chosen, e)
	}
	return chosen, nil
}

// missing is why an experiment cannot run here, behind its name; empty if it can.
func (e experiment) missing(url, sink string) string {
	onPostgres := url != "" && !strings.HasPrefix(url, "sqlite:") && !strings.HasPrefix(url, "mysql:") && !portable.Is(url)
	if !e.brokers && !onPostgres && !(e.portable && portable.Is(url)) && !(e.mysql && strings.HasPrefix(url, "mysql:")) {
		missing := "needs PostgreSQL: pass --database-url postgres://…"
		if e.mysql {
			missing += " or mysql://…"
		}
		if !e.portable {
			missing += ", and not the portable profile"
		}
		return missing
	}
	if e.name == "processor" && !strings.HasPrefix(sink, "amqp") {
		return "needs RabbitMQ: pass --sink amqp://…"
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
		s := &section{Name: "bench " + strings.TrimSpace(e.name+" "+e.all), ratios: e.ratios, Left: e.missing(url, sink)}
		r.Sections = append(r.Sections, s)
		fmt.Fprintf(a.stdout, "\n%s\n\n", s.Name)
		if s.Left != "" {
			fmt.Fprintf(a.stdout, "left out: it %s\n", s.Left)
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
	cmd, args := e.command(a), strings.Fields(e.all)
	if e.sink != "" {
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
