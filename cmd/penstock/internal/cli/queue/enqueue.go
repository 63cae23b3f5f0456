package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/lines"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/writer"
)

// jobFlags describe a job.
type jobFlags struct {
	job     penstock.NewJob // without its headers
	headers []string
}

func (f *jobFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.job.Kind, "kind", "", "`kind` of the job, which selects its handler")
	flags.StringVarP(&f.job.Key, "key", "k", "", "`key` whose jobs run one after another, in the order of their ids")
	flags.StringVarP(&f.job.Group, "group", "g", "", "`group`, such as a tenant: it has its own order")
	flags.IntVar(&f.job.Priority, "priority", 0, fmt.Sprintf("`number` from %d (first) to %d (last)", penstock.MinPriority, penstock.MaxPriority))
	flags.StringVar(&f.job.DedupKey, "dedup-key", "", "do not enqueue it if the queue had a job with this deduplication `key` within its window")
	flags.StringVar(&f.job.UniqueKey, "unique-key", "", "`key` of which the queue has one job at most that has not ended; it is the job's key as well")
	flags.StringVar((*string)(&f.job.OnConflict), "on-conflict", "", "`what` to do if the queue has a job with --unique-key: ignore (the default), replace or debounce")
	flags.Var((*cli.Span)(&f.job.DebounceMax), "debounce-max", "how long --on-conflict debounce puts a job off at most, from its first enqueue: a `duration`")
	flags.IntVar(&f.job.MaxAttempts, "max-attempts", 0, "`number` of attempts after which the job is a dead letter, instead of the queue's")
	flags.Var((*cli.Span)(&f.job.Timeout), "timeout", "`duration` of an attempt at most, such as 30s")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header as `name=value`; may be repeated")
}

// read returns the job of flags and payload.
func (f *jobFlags) read(flags *pflag.FlagSet, payload []byte) (penstock.NewJob, error) {
	if err := cli.NotEmpty(flags, "kind", "key", "dedup-key", "unique-key", "on-conflict"); err != nil {
		return penstock.NewJob{}, err
	}
	job, err := f.job, error(nil)
	job.Payload = payload
	job.Headers, err = cli.ReadHeaders(f.headers, "name=value")
	return job, err
}

type enqueueFlags struct {
	jobFlags
	cli.LineFlags
	delay     cli.Span
	notBefore string
	deadline  string
	once      bool
}

func EnqueueCommand(a *cli.App) *cobra.Command {
	var (
		f   enqueueFlags
		one []penstock.NewJob
	)
	cmd := terminal.Verb("enqueue QUEUE [PAYLOAD|-]", "Enqueue one job, or JSON lines of a file or stdin",
		a.Checked(func(cmd *cobra.Command, args []string) error {
			err := checkEnqueue(a, &f, cmd.Flags(), len(args) == 2)
			if err == nil && len(args) == 2 {
				one = make([]penstock.NewJob, 1)
				one[0], err = oneJob(cmd.Context(), a, &f, cmd.Flags(), args[1])
			}
			return err
		}, func(ctx context.Context, store driver.Database, args []string) error {
			if len(one) > 0 {
				made, err := store.DriverQueue(args[0]).Enqueue(ctx, one...)
				return cli.MixedUp(ctx, store, tellEnqueued(a, args[0], made, err), args[0])
			}
			return cli.MixedUp(ctx, store, enqueueLines(ctx, a, store, args[0], &f), args[0])
		}))
	f.add(cmd.Flags())
	return a.WithJSON(cmd, "the ids of each transaction, and which are of duplicates, as one JSON line")
}

func (f *enqueueFlags) add(flags *pflag.FlagSet) {
	f.jobFlags.add(flags)
	flags.Var(&f.delay, "delay", "run it after this `duration`, such as 90s, 24h or 7d")
	flags.StringVar(&f.notBefore, "not-before", "", "run it at this `time` or later: 2026-11-22T08:00:00Z, or \"2026-11-22 08:00\" in local time")
	flags.StringVar(&f.deadline, "deadline", "", "begin no attempt after this `time`, or duration from now: the job then ends as expired")
	f.LineFlags.Add(flags)
	flags.BoolVar(&f.once, "once", false, "skip lines that were enqueued before, within the queue's window")
}

func checkEnqueue(a *cli.App, f *enqueueFlags, flags *pflag.FlagSet, one bool) error {
	if err := cmp.Or(
		errors.Join(f.Check(), cli.NotEmpty(flags, "file", "rejects")),
		cli.Refuse(flags.Changed("delay") && flags.Changed("not-before"), "--delay and --not-before are given: use one of them"),
		cli.Refuse(one && (f.File != "" || f.once), "--file and --once are for JSON lines, and PAYLOAD is given: leave one out"),
	); err != nil || one {
		return err
	}
	for _, name := range []string{"kind", "key", "group", "priority", "header", "delay", "not-before", "dedup-key", "unique-key", "on-conflict", "debounce-max", "max-attempts", "timeout", "deadline"} {
		if flags.Changed(name) {
			return terminal.Usage(fmt.Errorf("--%s is given without PAYLOAD: give one, - to read it from stdin, or write %s into the JSON lines", name, name))
		}
	}
	return cli.Refuse(f.File == "" && terminal.IsTerminal(a.Stdin), "nothing to enqueue: give PAYLOAD, --file, or JSON lines on stdin")
}

// oneJob is the job of the flags and PAYLOAD.
func oneJob(ctx context.Context, a *cli.App, f *enqueueFlags, flags *pflag.FlagSet, payload string) (penstock.NewJob, error) {
	bytes, err := payloadArgument(ctx, a, payload)
	if err != nil {
		return penstock.NewJob{}, err
	}
	job, err := f.read(flags, bytes)
	if err != nil {
		return penstock.NewJob{}, err
	}
	if flags.Changed("delay") {
		job.NotBefore = time.Now().Add(time.Duration(f.delay))
	}
	if flags.Changed("not-before") {
		at, ok := cli.ParseTime(f.notBefore)
		if !ok {
			return penstock.NewJob{}, terminal.Usage(fmt.Errorf(`--not-before is %q: use a time such as 2026-11-22T08:00:00Z or "2026-11-22 08:00" (local), or --delay 2h`, f.notBefore))
		}
		job.NotBefore = at
	}
	if flags.Changed("deadline") {
		at, ok := cli.ParseTime(f.deadline)
		if after, err := cli.ParseSpan(f.deadline); err == nil {
			at, ok = time.Now().Add(after), true
		}
		if !ok {
			return penstock.NewJob{}, terminal.Usage(fmt.Errorf(`--deadline is %q: use a time such as 2026-11-22T08:00:00Z, or a duration such as 15m`, f.deadline))
		}
		job.Deadline = at
	}
	return job, job.Validate()
}

// payloadArgument is the argument itself, or stdin for -.
func payloadArgument(ctx context.Context, a *cli.App, argument string) ([]byte, error) {
	if argument != "-" {
		return []byte(argument), nil
	}
	return a.ReadPayload(ctx, "reading the payload", argument)
}

func enqueueLines(ctx context.Context, a *cli.App, store writer.Store, name string, f *enqueueFlags) error {
	kind := jobLines
	if f.once {
		id, parse := f.Numbered(name), kind.Parse
		kind.Parse = func(line []byte) (penstock.NewJob, error) {
			of := id(line)
			j, err := parse(line)
			j.DedupKey = cmp.Or(j.DedupKey, of)
			return j, err
		}
	}
	w := f.Writer(store)
	defer func() { _ = w.Close(ctx) }()
	done, err := cli.CarryLines(ctx, a, &f.LineFlags, &kind, func(ctx context.Context, jobs []penstock.NewJob) (func(context.Context) error, error) {
		wait, err := w.EnqueueAsync(ctx, name, jobs...)
		return func(ctx context.Context) error {
			made, err := wait(ctx)
			return tellEnqueued(a, name, made, err)
		}, err
	}, cli.Refuses(store))
	if err == nil && done.Sent == 0 {
		fmt.Fprintln(a.Stderr, "no job was enqueued: the input has no lines")
	}
	return err
}

// tellEnqueued prints the ids of jobs that were enqueued in one transaction.
func tellEnqueued(a *cli.App, name string, made []penstock.Enqueued, err error) error {
	if err != nil {
		return about.Queue(err, "", name)
	}
	if a.JSON {
		ids, deduplicated := make([]int64, len(made)), make([]bool, len(made))
		for i, m := range made {
			ids[i], deduplicated[i] = m.ID, m.Deduplicated
		}
		return json.NewEncoder(a.Stdout).Encode(map[string]any{"queue": name, "ids": ids, "deduplicated": deduplicated})
	}
	for _, m := range made {
		if _, err := fmt.Fprintln(a.Stdout, m.ID); err != nil {
			return err
		}
	}
	return nil
}

// jobLine is a job to enqueue as a line of JSON.
type jobLine struct {
	Kind      string            `json:"kind"`
	Key       string            `json:"key"`
	Group     string            `json:"group"`
	Priority  int               `json:"priority"`
	Delay     string            `json:"delay"`
	NotBefore time.Time         `json:"not_before"`
	DedupKey  string            `json:"dedup_key"`
	Headers   map[string]string `json:"headers"`

	UniqueKey   string              `json:"unique_key"`
	OnConflict  penstock.OnConflict `json:"on_conflict"`
	DebounceMax string              `json:"debounce_max"`
	MaxAttempts int                 `json:"max_attempts"`
	Timeout     string              `json:"timeout"`
	Deadline    time.Time           `json:"deadline"`
	lines.PayloadFields
}

var jobWords = lines.Words{Item: "job", Verb: "enqueue", Past: "enqueued", Doing: "enqueuing", Sample: `{"payload":"p","key":"k"}`}

// jobLines reads jobs whose delays count from now.
var jobLines = lines.Kind[penstock.NewJob]{Words: &jobWords, Parse: parseJobLine, Size: jobSize}

func parseJobLine(line []byte) (penstock.NewJob, error) {
	var l jobLine
	if err := jobWords.Decode(line, &l); err != nil {
		return penstock.NewJob{}, err
	}
	payload, err := l.Bytes()
	if err != nil {
		return penstock.NewJob{}, err
	}
	j := penstock.NewJob{
		Payload: payload, Kind: l.Kind, Key: l.Key, Group: l.Group, Priority: l.Priority,
		NotBefore: l.NotBefore, DedupKey: l.DedupKey, Headers: l.Headers,
		UniqueKey: l.UniqueKey, OnConflict: l.OnConflict, MaxAttempts: l.MaxAttempts, Deadline: l.Deadline,
	}
	delay := time.Duration(0)
	for _, span := range []struct {
		name, text string
		to         *time.Duration
	}{{"delay", l.Delay, &delay}, {"debounce_max", l.DebounceMax, &j.DebounceMax}, {"timeout", l.Timeout, &j.Timeout}} {
		if span.text == "" {
			continue
		}
		if *span.to, err = cli.ParseSpan(span.text); err != nil {
			return penstock.NewJob{}, fmt.Errorf("%s is %q: %w", span.name, span.text, err)
		}
	}
	if l.Delay != "" {
		if !l.NotBefore.IsZero() {
			return penstock.NewJob{}, errors.New("has both delay and not_before: give one")
		}
		j.NotBefore = time.Now().Add(delay)
	}
	return j, j.Validate()
}

// jobSize is about how many bytes the job takes in memory.
func jobSize(j *penstock.NewJob) int {
	carried := penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload}
	return carried.Size()
}
