package relay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/config"
	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// relayJob is one subscription to run, of an outbox or of an adopted table.
type relayJob struct {
	outbox, subscription, holder string
	adopt                        *adopt.Config // nil: outbox is set
	start                        penstock.Start
	sink                         config.Sink
	format                       *config.WireFormat // nil: as they are
	previous                     bool
	limits                       relay.Config // limits and filter only
}

// jobsOf is what the flags ask for: one subscription without a file, or
// those of the file.
func jobsOf(a *cli.App, f relayFlags) ([]relayJob, error) {
	holder := f.holder
	if holder == "" {
		holder = cli.DefaultHolder()
	}
	if f.outbox == "" && f.adopt == "" && f.sink == "" {
		if len(f.withoutFile) > 0 {
			return nil, cli.Usage(fmt.Errorf("--%s goes with --outbox or --adopt, and --sink: with a configuration file, write it there", f.withoutFile[0]))
		}
		return configuredJobs(a, f, holder)
	}
	a.Stderr.Hide(f.sink)
	job, err := f.job(holder)
	if err != nil {
		return nil, err
	}
	return []relayJob{job}, nil
}

// job is the one that flags alone describe.
func (f *relayFlags) job(holder string) (job relayJob, err error) {
	switch {
	case f.outbox != "" && f.adopt != "":
		return job, cli.Usage(errors.New("--outbox and --adopt are both given: a subscription reads an outbox or a table that is adopted"))
	case f.adopt == "" && f.outbox == "":
		return job, cli.Usage(errors.New("--sink is given without --outbox: say which outbox to relay, or with --adopt which table"))
	case f.sink == "":
		return job, cli.Usage(fmt.Errorf("%s is given without --sink: say where to relay it, as in --sink amqp://guest:guest@localhost/", map[bool]string{true: "--outbox", false: "--adopt"}[f.outbox != ""]))
	}
	for _, name := range []string{"table", "workers"} {
		if f.adopt == "" && slices.Contains(f.withoutFile, name) {
			return job, cli.Usage(fmt.Errorf("--%s goes with --adopt: with an outbox it has no meaning", name))
		}
	}
	job = relayJob{outbox: f.outbox, subscription: cmp.Or(f.subscription, "default"), holder: holder, previous: f.previous}
	if job.start, err = cli.ParseStart(f.from); err != nil {
		return job, err
	}
	if job.sink, err = config.ParseSink(f.sink); err != nil {
		return job, cli.Usage(fmt.Errorf("--sink: %w", err))
	}
	if job.limits, err = f.limits(&job.sink); err != nil {
		return job, err
	}
	if f.adopt != "" {
		if err := f.adopted(&job); err != nil {
			return job, cli.Usage(err)
		}
	}
	if job.sink.Queue != nil {
		for _, name := range f.withoutFile {
			if name != "from" && name != "lease" {
				return job, cli.Usage(fmt.Errorf("--%s has no meaning with a queue as the sink: it gets every message, and its workers retry", name))
			}
		}
	}
	if f.format == "" {
		return job, nil
	}
	if job.format, err = config.ParseFormat(f.format, job.reads()); err == nil {
		err = job.format.ValidateFor(format.Binding(job.sink.Name()))
	}
	if err != nil {
		return job, cli.Usage(fmt.Errorf("--format: %w", err))
	}
	return job, nil
}

// adopted completes a job over a table that is adopted.
func (f *relayFlags) adopted(job *relayJob) error {
	c := adopt.Config{Preset: f.adopt, Table: f.table, Workers: f.workers}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return fmt.Errorf("--adopt: %w", err)
	}
	switch {
	case job.start != penstock.FromBeginning:
		return errors.New("--from now has no meaning with --adopt: the rows say themselves what is to be delivered")
	case job.sink.Queue != nil:
		return errors.New("--sink is a queue, which only an outbox is forwarded to: name a broker")
	case f.previous && !c.Ordered():
		return errors.New("--previous is given with several workers, which read the table in no order: remove one of the two")
	}
	job.adopt = &c
	job.subscription = cmp.Or(f.subscription, c.Table)
	return nil
}

// reads is what the job relays, as it is called in logs and errors.
func (j *relayJob) reads() string {
	if j.adopt != nil {
		return j.adopt.Table
	}
	return j.outbox
}

// limits are those that the flags set, those that suit the sink, and the filter.
func (f *relayFlags) limits(sink *config.Sink) (relay.Config, error) {
	if f.lease == 0 && slices.Contains(f.withoutFile, "lease") {
		return relay.Config{}, cli.Usage(errors.New("--lease is 0: use a time such as 15s"))
	}
	limits := config.Relay{Lease: time.Duration(f.lease), MaxAttempts: f.maxAttempts, MaxAge: f.maxAge, OnDead: f.onDead}
	limits = limits.For(sink)
	rc := limits.Config()
	var err error
	rc.Filter, err = f.FilterFlags.Read()
	return rc, err
}

func configuredJobs(a *cli.App, f relayFlags, holder string) ([]relayJob, error) {
	cfg, err := a.LoadConfig()
	if err != nil {
		return nil, err
	}
	if cfg == nil {
		return nil, cli.Usage(errors.New("nothing to relay is given: pass --outbox and --sink, or --config penstock.yaml"))
	}
	var (
		jobs  []relayJob
		names []string
	)
	for _, s := range cfg.Subscriptions {
		names = append(names, s.Name)
		if f.subscription == "" || f.subscription == s.Name {
			job := relayJob{
				outbox: s.Outbox, subscription: s.Name, holder: holder, start: penstock.Start(s.Start), sink: s.Sink,
				format: s.Format, previous: s.Previous, limits: configuredLimits(&s),
			}
			if s.Adopt != nil {
				job.adopt = &s.Adopt.Config
			}
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return nil, cli.Usage(fmt.Errorf("--subscription %q is not in the configuration, which has %s", f.subscription, strings.Join(names, ", ")))
	}
	return jobs, nil
}

// configuredLimits hands on what the file says.
func configuredLimits(s *config.Subscription) relay.Config {
	rc := s.Relay.Config()
	rc.Filter = s.Filter
	return rc
}

// relayLogger is the file's logger unless the flags say otherwise.
func relayLogger(a *cli.App, fromFlags bool) (*slog.Logger, error) {
	if !fromFlags {
		if cfg, err := a.LoadConfig(); err == nil && cfg != nil {
			return cfg.Log.NewLogger(a.Stderr), nil
		}
	}
	return a.Logger()
}
