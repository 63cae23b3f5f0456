// Package work has penstock work, which runs a command for each job.
package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/console"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/sink/webhook"
)

type workFlags struct {
	config.Worker
	metrics cli.MetricsFlags
	console console.Flags
}

func Command(a *cli.App) *cobra.Command {
	var f workFlags
	cmd := terminal.Verb("work [QUEUE --exec COMMAND|--http URL]", "Run a command, or send a request, for each job of a queue",
		func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags(), args); err != nil {
				return err
			}
			cfg, err := f.configured(a, args)
			if err != nil {
				return err
			}
			return runWorkers(cmd.Context(), a, cfg, &f)
		})
	cmd.Annotations = terminal.OwnSignals
	f.add(cmd.Flags())
	return cmd
}

func (f *workFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Exec, "exec", "", "`command` for /bin/sh to run, once per job")
	flags.StringVar((*string)(&f.HTTP), "http", "", "`url` to send each job to, instead of --exec")
	flags.StringArrayVarP(&f.Groups, "group", "g", nil, "`group` to work on; may be repeated (default the jobs without one)")
	flags.BoolVar(&f.AllGroups, "all-groups", false, "work on every group, whenever it appears")
	flags.StringArrayVar(&f.Kinds, "kind", nil, "`kind` of jobs to run; may be repeated, and '' is the jobs without one (default all jobs)")
	flags.IntVar(&f.Concurrency, "concurrency", runtime.GOMAXPROCS(0), "`number` of commands that run at a time")
	flags.Lookup("concurrency").DefValue = "the number of CPUs"
	flags.Var((*cli.Span)(&f.Lease), "lease", "`duration` after which another worker runs the jobs of one that crashed (default 30s)")
	flags.Var((*cli.Span)(&f.Timeout), "timeout", "kill a command that runs longer than this `duration`; its job failed (default unlimited)")
	flags.Var((*cli.Span)(&f.DrainTimeout), "drain-timeout", "`duration` for which commands may run after a signal (default as long as they take)")
	f.metrics.Add(flags, "")
	f.console.AddListen(flags)
	flags.StringVar((*string)(&f.Output), "output", "inherit", "`destination` of the commands' stdout and stderr: inherit, that of penstock, or discard")
}

func (f *workFlags) check(flags *pflag.FlagSet, args []string) error {
	switch {
	case len(args) == 0 && f.Exec == "" && f.HTTP == "":
		return nil // the file's workers
	case len(args) == 0:
		return terminal.Misuse(errors.New("got 0 arguments, it takes QUEUE"))
	case f.Exec == "" && f.HTTP == "":
		return terminal.Misuse(errors.New("--exec is missing: give the command to run, or with --http the URL to send each job to"))
	case f.Exec != "" && f.HTTP != "":
		return terminal.Misuse(errors.New("--exec is given with --http: leave one of them out"))
	case f.Concurrency < 1:
		return terminal.Usage(fmt.Errorf("--concurrency is %d: use 1 or more", f.Concurrency))
	case f.AllGroups && len(f.Groups) > 0:
		return terminal.Misuse(errors.New("--all-groups is given with --group: leave one of them out"))
	case slices.ContainsFunc(f.Kinds, func(kind string) bool { return penstock.ValidateKind(kind) != nil }):
		return terminal.Usage(errors.New("--kind is not possible: use up to 100 bytes without control characters"))
	case f.Output != config.Inherit && f.Output != config.Discard:
		return terminal.Usage(fmt.Errorf("--output is %q: use inherit or discard", f.Output))
	}
	if value := time.Duration(*flags.Lookup("lease").Value.(*cli.Span)); flags.Changed("lease") && value < time.Second {
		return terminal.Usage(fmt.Errorf("--lease is %s: use at least a second, such as 30s", value))
	}
	for _, name := range []string{"timeout", "drain-timeout"} {
		if value := flags.Lookup(name).Value.(*cli.Span); flags.Changed(name) && *value <= 0 {
			return terminal.Usage(fmt.Errorf("--%s is 0: use a time such as 30s, or leave it out", name))
		}
	}
	return nil
}

// secretsVariable has the secrets that sign requests, because others can read a command line.
const secretsVariable = "PENSTOCK_HTTP_SECRETS"

// configured is a configuration with the worker of the flags, or the file.
func (f *workFlags) configured(a *cli.App, args []string) (*config.Config, error) {
	if len(args) == 0 {
		cfg, err := a.LoadConfig()
		if err != nil {
			return nil, err
		}
		if cfg == nil || len(cfg.Workers) == 0 {
			return nil, terminal.Misuse(errors.New("QUEUE is missing: name it, or list workers in the configuration file"))
		}
		cfg.Subscriptions, cfg.Serve = nil, nil
		return cfg, f.metrics.Set(&cfg.Metrics)
	}
	f.Queue = args[0]
	if f.HTTP != "" {
		for _, secret := range strings.Fields(strings.ReplaceAll(os.Getenv(secretsVariable), ",", " ")) {
			f.HTTPSecrets = append(f.HTTPSecrets, webhook.Secret(secret))
		}
		if _, err := f.Webhook(); err != nil {
			return nil, terminal.Usage(fmt.Errorf("--http: %w", err))
		}
	}
	cfg := &config.Config{Workers: []config.Worker{f.Worker}}
	cfg.SetDefaults()
	return cfg, f.metrics.Set(&cfg.Metrics)
}

func runWorkers(ctx context.Context, a *cli.App, cfg *config.Config, f *workFlags) error {
	store, err := a.OpenStore(ctx)
	if err != nil {
		return err
	}
	if err := a.Trace(ctx); err != nil {
		return err
	}
	log := a.Logger()
	only := "" // the one queue whose functions and status matter
	if len(cfg.Workers) == 1 {
		only = cfg.Workers[0].Queue
	}
	defer cli.WarnOfDifferences(ctx, store, only, true, log)()
	o := run.Options{Store: store, Log: log}
	o.Metrics = run.NewMetrics(cfg, o)
	if err := f.console.ServeDuring(ctx, a, o.Metrics); err != nil {
		return err
	}
	return a.Run(ctx, cfg, o)
}
