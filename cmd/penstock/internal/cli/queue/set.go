package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// queueFlags are a queue's settings as flags.
type queueFlags struct {
	maxAttempts int
	maxRunning  string
	rate        string
	burst       int
	dedupWindow cli.Span
	keepDone    string
	keepBytes   string
}

func (f *queueFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.maxAttempts, "max-attempts", 25, "`number` of attempts before a job is a dead letter")
	flags.StringVar(&f.maxRunning, "max-running", "", "`number` of jobs that may run at a time, in all processes together, or unlimited (the default)")
	flags.StringVar(&f.rate, "rate", "", "`jobs/duration` that may start, such as 100/1s, or unlimited (the default)")
	flags.IntVar(&f.burst, "burst", 0, "`number` of jobs that may start at once after a pause (default 1)")
	flags.Var(&f.dedupWindow, "dedup-window", "`duration` for which a deduplication key counts, such as 10m or 1d (default 1h)")
	flags.StringVar(&f.keepDone, "keep-done", "", "keep finished jobs for this `duration`, such as 24h or 7d; off, the default, keeps none (PostgreSQL)")
	flags.StringVar(&f.keepBytes, "keep-done-bytes", "", "keep finished jobs only up to this `size`, such as 512MiB (default 1GiB)")
}

// read returns the given settings; the others are nil.
func (f *queueFlags) read(flags *pflag.FlagSet) (s penstock.QueueSettings, err error) {
	if flags.Changed("max-attempts") {
		if f.maxAttempts < 1 {
			return s, terminal.Usage(fmt.Errorf("--max-attempts is %d: use 1 or more", f.maxAttempts))
		}
		s.MaxAttempts = &f.maxAttempts
	}
	if flags.Changed("max-running") {
		s.MaxRunning = new(int)
		if f.maxRunning != "unlimited" {
			if *s.MaxRunning, err = strconv.Atoi(f.maxRunning); err != nil || *s.MaxRunning < 1 {
				return s, terminal.Usage(fmt.Errorf("--max-running is %q: use 1 or more, or unlimited; penstock queue pause NAME lets none run", f.maxRunning))
			}
		}
	}
	if flags.Changed("rate") || flags.Changed("burst") {
		s.Rate = new(penstock.Rate)
		if f.rate != "unlimited" {
			if *s.Rate, err = cli.ParseRate(f.rate, f.burst); err != nil {
				return s, err
			}
		}
	}
	if flags.Changed("dedup-window") {
		if f.dedupWindow <= 0 {
			return s, terminal.Usage(errors.New("--dedup-window is 0: use a time such as 10m"))
		}
		window := time.Duration(f.dedupWindow)
		s.DedupWindow = &window
	}
	if s.KeepDone, err = cli.OrOff(flags, "keep-done", f.keepDone, cli.ParseSpan); err != nil {
		return s, err
	}
	if flags.Changed("keep-done-bytes") {
		bytes, err := cli.ParseSize(f.keepBytes)
		if err == nil && bytes < penstock.MinKeepDoneBytes {
			err = fmt.Errorf("use %s or more; --keep-done off keeps none", terminal.Size(penstock.MinKeepDoneBytes))
		}
		if err != nil {
			return s, terminal.Usage(fmt.Errorf("--keep-done-bytes is %q: %w", f.keepBytes, err))
		}
		s.KeepDoneBytes = &bytes
	}
	return s, nil
}

func setCommand(a *cli.App) *cobra.Command {
	var (
		f      queueFlags
		wanted penstock.QueueSettings
	)
	cmd := terminal.Verb("set NAME", "Set a queue's limits", a.Checked(func(cmd *cobra.Command, _ []string) (err error) {
		if wanted, err = f.read(cmd.Flags()); err == nil && wanted == (penstock.QueueSettings{}) {
			err = terminal.Misuse(errors.New("nothing to set: give --max-attempts, --max-running, --rate, --dedup-window or --keep-done"))
		}
		return err
	}, func(ctx context.Context, store driver.Database, args []string) error {
		return setQueue(ctx, a, store, args[0], wanted)
	}))
	f.add(cmd.Flags())
	return a.WithJSON(cmd, "the new settings, as one JSON line")
}

func pauseCommand(a *cli.App, pause bool) *cobra.Command {
	use, short := "resume NAME", "Let the jobs of a paused queue run again"
	if pause {
		use, short = "pause NAME", "Pause a queue (running jobs finish)"
	}
	cmd := terminal.Verb(use, short, a.Opened(func(ctx context.Context, store driver.Database, args []string) error {
		return setQueue(ctx, a, store, args[0], penstock.QueueSettings{Paused: &pause})
	}))
	return a.WithJSON(cmd, "the new settings, as one JSON line")
}

// setQueue changes a queue and prints the new settings.
func setQueue(ctx context.Context, a *cli.App, store driver.QueueStore, name string, wanted penstock.QueueSettings) error {
	if err := store.SetQueue(ctx, name, wanted); err != nil {
		return about.Queue(err, fmt.Sprintf("setting up queue %q", name), name)
	}
	set := struct {
		Queue string `json:"queue"`
		penstock.QueueSettings
	}{name, wanted} // the settings are changed: a status that cannot be read is left out
	if q, err := findQueue(ctx, store, name, uncounted); err == nil {
		set.QueueSettings = q.QueueSettings
	}
	return a.Tell(set, "Queue %s: %s.\n", shell.Visible(name), settingsText(set.QueueSettings))
}

// settingsText describes settings for people; a store fills in all of them.
func settingsText(s penstock.QueueSettings) string {
	var parts []string
	if cli.IsPaused(s) {
		parts = append(parts, "paused")
	} else if s == (penstock.QueueSettings{Paused: s.Paused}) {
		parts = append(parts, "not paused")
	}
	if s.MaxAttempts != nil {
		parts = append(parts, terminal.Plural(int64(*s.MaxAttempts), "attempt"))
	}
	if s.MaxRunning != nil {
		parts = append(parts, cli.RunningLimit(s)+" at a time")
	}
	if s.Rate != nil && s.Rate.Jobs > 0 {
		parts = append(parts, cli.RateText(*s.Rate))
	}
	if s.DedupWindow != nil {
		parts = append(parts, "deduplication for "+cli.SpanText(*s.DedupWindow))
	}
	if s.KeepDone != nil && *s.KeepDone > 0 {
		text := "done jobs kept for " + cli.SpanText(*s.KeepDone)
		if s.KeepDoneBytes != nil {
			text += ", " + terminal.Size(*s.KeepDoneBytes) + " at most"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
