// Package work has penstock work, which runs a command for each job.
package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/about"
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/cli/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/trace"
	"github.com/penstock/penstock/work"
)

type workFlags struct {
	command, http, output string
	groups                []string
	allGroups             bool
	concurrency           int
	lease, timeout, drain cli.Span
	metrics               cli.MetricsFlags
	console               cli.ConsoleFlags
}

func Command(a *cli.App) *cobra.Command {
	var f workFlags
	cmd := &cobra.Command{
		Use:   "work QUEUE --exec COMMAND|--http URL",
		Short: "Run a command, or send a request, for each job of a queue",
		Long: `Run a command for each job of a queue, until it is told to stop. /bin/sh runs
COMMAND, with the payload on its stdin and these variables beside our own:

  PENSTOCK_JOB_QUEUE, _ID, _KEY, _GROUP   what the job is
  PENSTOCK_JOB_ATTEMPT                    1 the first time
  PENSTOCK_JOB_HEADER_NAME                each header; in NAME small letters are
                                          capital, and what is no letter or digit
                                          is an underscore
  TRACEPARENT, TRACESTATE                 the headers of these names, if it has them

Its exit code decides what becomes of the job:

  0       it is done
  64, 65  it is a dead letter at once: no attempt can help (EX_USAGE, EX_DATAERR)
  other   it failed, such as 75 (EX_TEMPFAIL): it is tried again after growing
          pauses, until its attempts are used up and it is a dead letter

The last lines that it wrote to stderr are kept as the error, up to 2 KiB:
penstock dead shows them. Its output goes to ours, unless --output is discard.

With --http each job is a POST of its payload to URL, with its headers, its id in
webhook-id, and, signed with the secrets in PENSTOCK_HTTP_SECRETS, the Standard
Webhooks headers: an HMAC of id, time and body. The answer decides: 2xx ends the
job; 408, 425, 429 and 5xx have it tried again, after Retry-After if there is one;
any other makes it a dead letter. While the endpoint cannot be reached, jobs
rest and spend no attempt. Options stand behind a #, as in --sink: addresses that
are not public need #allow_private=true.

A job is leased for --lease, and the lease is extended while the command runs, so
that the jobs of a worker that died run elsewhere when it ends. The command is
killed, with its process group, when the lease was lost, when the job was
cancelled, after --timeout, and at a second signal. A job can run more than once
after a crash, so write commands that may be repeated.

Any number of workers may run on a queue, on any machines. Without --group a worker
takes the jobs that have none. Of several groups, or --all-groups, those that have
jobs take turns, so that a busy one holds no other up.

SIGTERM or SIGINT drains: no more jobs are claimed, commands that run may end,
exit code 0. With --drain-timeout those that run longer are killed. A second
signal kills them at once, exit code 130. Either way their jobs run again, without
waiting for the lease to end.`,
		Example: `  penstock work thumbnails --exec './make-thumbnail'
  penstock work mails --exec 'sendmail -t || exit 75' --concurrency 4 --timeout 30s
  penstock work reports --group acme --exec 'exec ./report --days "$(jq -e .days)"' --output discard
  penstock work thumbnails --http https://fn.example.com/thumbnail --concurrency 50 --timeout 60s
  penstock work reports --all-groups --exec './report "$PENSTOCK_JOB_GROUP"'`,
		Args:        cli.Exactly("QUEUE"),
		Annotations: cli.OwnSignals,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			return workUntilSignals(cmd.Context(), a, args[0], &f)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *workFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.command, "exec", "", "command for /bin/sh to run, once per job")
	flags.StringVar(&f.http, "http", "", "URL to send each job to, in place of --exec")
	flags.StringArrayVarP(&f.groups, "group", "g", nil, "group to work on; repeatable (default the jobs without one)")
	flags.BoolVar(&f.allGroups, "all-groups", false, "work on every group, whenever it appears")
	flags.IntVar(&f.concurrency, "concurrency", runtime.GOMAXPROCS(0), "commands that run at a time")
	flags.Lookup("concurrency").DefValue = "the number of CPUs"
	flags.Var(&f.lease, "lease", "after how long the jobs of a worker that crashed run elsewhere (default 30s)")
	flags.Var(&f.timeout, "timeout", "kill a command that runs longer; its job failed (default unlimited)")
	flags.Var(&f.drain, "drain-timeout", "how long commands may run after a signal (default as long as they take)")
	f.metrics.Add(flags, "")
	f.console.AddListen(flags)
	flags.StringVar(&f.output, "output", "inherit", "where stdout and stderr of the commands go: inherit, to ours, or discard")
}

func (f *workFlags) check(flags *pflag.FlagSet) error {
	switch {
	case f.command == "" && f.http == "":
		return cli.Misuse(errNothingToRun)
	case f.command != "" && f.http != "":
		return cli.Misuse(errors.New("--exec is given with --http: leave one of them out"))
	case f.concurrency < 1:
		return cli.Usage(fmt.Errorf("--concurrency is %d: use 1 or more", f.concurrency))
	case f.allGroups && len(f.groups) > 0:
		return cli.Misuse(errors.New("--all-groups is given with --group: leave one of them out"))
	case f.output != "inherit" && f.output != "discard":
		return cli.Usage(fmt.Errorf("--output is %q: use inherit or discard", f.output))
	}
	for _, name := range []string{"lease", "timeout", "drain-timeout"} {
		if value := flags.Lookup(name).Value.(*cli.Span); flags.Changed(name) && *value <= 0 {
			return cli.Usage(fmt.Errorf("--%s is 0: use a time such as 30s, or leave it out", name))
		}
	}
	return nil
}

func (f *workFlags) options(queue string, log *slog.Logger, seen work.Observer) work.Options {
	o := work.Options{
		Concurrency: f.concurrency, Lease: time.Duration(f.lease), Groups: f.groups, AllGroups: f.allGroups,
		DrainTimeout: time.Duration(f.drain), Observer: seen, Logger: log, Middleware: []func(work.Handler) work.Handler{trace.Worker(queue)},
	}
	if f.drain == 0 {
		o.DrainTimeout = math.MaxInt64 // nothing runs so long
	}
	return o
}

func workUntilSignals(ctx context.Context, a *cli.App, name string, f *workFlags) error {
	store, err := a.OpenQueues(ctx)
	if err != nil {
		return err
	}
	if err := a.Trace(ctx); err != nil {
		return err
	}
	log := slog.Default().With("queue", name) // openStore has set it
	defer cli.WarnOfDifferences(ctx, store, name, log)()
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	hurried, hurry := context.WithCancel(context.Background())
	defer hurry()
	stopListening := a.OnSignals(func() {
		log.Info("draining: commands that run may end; a second signal kills them")
		drain()
	}, hurry)
	defer stopListening()
	m, err := f.metrics.New(metrics.Options{Store: store, Queue: name, Logger: log})
	if err != nil {
		return err
	}
	seen := &jobCounts{Observer: m.Worker(name)}
	if err := f.metrics.Serve(a, m); err != nil {
		return err
	}
	if err := f.console.Beside(ctx, a, doctor.Findings, m); err != nil {
		return err
	}
	return run(ctx, hurried, a, store.Queue(name), name, f, seen, log)
}

// patience is how long a worker that is hurried tries to give back its jobs.
const patience = 10 * time.Second

// run runs jobs until ctx ends and the commands have ended, or hurried has.
func run(ctx, hurried context.Context, a *cli.App, queue penstock.Queue, name string, f *workFlags, seen *jobCounts, log *slog.Logger) error {
	// What cannot be worked on is told at the start; a database that is down is
	// waited for.
	if err := queue.Maintain(ctx); err != nil && ctx.Err() == nil && !pgerror.IsDown(err) {
		return about.Queue(err, "working", name)
	}
	run := &execution{
		queue: name, command: f.command, timeout: time.Duration(f.timeout),
		hurried: hurried, giveBack: giver(queue),
	}
	if f.http != "" {
		sink, err := f.webhook(log)
		if err != nil {
			return err
		}
		defer func() { _ = sink.Close(context.WithoutCancel(ctx)) }()
		run.http, run.timeout, run.log = sink, 0, log // the request has the timeout
	}
	if f.output == "inherit" {
		run.stdout, run.stderr = sharedWriter(a.Stdout), a.Stderr
	}
	groups := any("all")
	if !f.allGroups {
		groups = f.groups
	}
	log.Info("working", "groups", groups, "concurrency", f.concurrency)
	defer seen.log(log)
	ended := make(chan error, 1)
	go func() { ended <- work.Run(ctx, queue, run.handle, f.options(name, log, seen)) }()
	var err error
	select {
	case err = <-ended:
	case <-hurried.Done():
		select {
		case err = <-ended:
		case <-time.After(patience):
			err = errors.New("jobs that were killed could not be given back in time; they run again when their leases end")
		}
	}
	if hurried.Err() != nil {
		return errors.Join(context.Canceled, err)
	}
	return about.Queue(err, "working", name)
}

// giver returns what gives a job back as if it had not been claimed, or as near
// to that as the queue comes.
func giver(queue penstock.Queue) func(ctx context.Context, job penstock.Job) error {
	if r, ok := queue.(penstock.Releaser); ok {
		return func(ctx context.Context, job penstock.Job) error {
			_, err := r.Release(ctx, 0, job.Lease)
			return err
		}
	}
	return func(ctx context.Context, job penstock.Job) error {
		_, err := queue.Retry(ctx, job.Lease, 0, "the worker was stopped")
		return err
	}
}

// jobCounts counts how jobs ended, beside the metrics.
type jobCounts struct {
	work.Observer
	done, failed, dead, lost atomic.Int64
}

func (c *jobCounts) Ended(job penstock.Job, how work.End, took time.Duration) {
	c.Observer.Ended(job, how, took)
	switch how {
	case work.Done:
		c.done.Add(1)
	case work.Failed:
		c.failed.Add(1)
	case work.Dead:
		c.dead.Add(1)
	case work.Lost:
		c.lost.Add(1)
	}
}

func (c *jobCounts) log(log *slog.Logger) {
	log.Info("stopped", "done", c.done.Load(), "failed", c.failed.Load(), "dead", c.dead.Load(), "lost", c.lost.Load())
}
