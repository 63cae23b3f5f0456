// Package dead has penstock dead: dead letters of subscriptions and of queues.
package dead

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/internal/terminal"
)

func Command(a *cli.App) *cobra.Command {
	return terminal.Group(&cobra.Command{Use: "dead", Short: "Look at dead letters, send or run them again, or discard them"},
		listCommand(a), showCommand(a), actionCommand(a, retryDead), actionCommand(a, resendDead), actionCommand(a, discardDead))
}

// deadFlags choose dead letters of one subscription or queue.
type deadFlags struct {
	adopt.Flags
	admin.DeadLetterQuery // without times
	kind, group           string
	olderThan, newerThan  cli.Span
	noGroup               bool // --group '': the jobs without one
	listing               bool // it changes nothing
	all                   bool
	narrowed, byName      bool // whether anything was chosen, and by ids or seqs
}

func (f *deadFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Subscription, "subscription", "", "dead letters of this subscription, by its `name` (default: the outbox's only subscription)")
	flags.Int64SliceVar(&f.Seqs, "seq", nil, "those with this `seq`, of an outbox; may be repeated")
	flags.Lookup("seq").DefValue = "" // not "[]"
	flags.StringVar(&f.Key, "key", "", "those of this `key`")
	flags.StringVar(&f.Topic, "topic", "", "those of this `topic`, of an outbox")
	flags.StringVar(&f.kind, "kind", "", "those of this `kind`, of a queue")
	flags.StringVar(&f.group, "group", "", "those of this `group`, of a queue")
	flags.StringVar(&f.Error, "error", "", "those whose last error contains this `text`")
	flags.Var(&f.olderThan, "older-than", "those that died longer ago than this `duration`, such as 90s, 24h or 7d")
	flags.Var(&f.newerThan, "newer-than", "those that died within this last `duration`")
	flags.IntVar(&f.Limit, "limit", 0, "at most this `number`, the first by seq")
	f.Flags.Add(flags)
}

// check reads which flags and ids were given. An empty text is an error rather than no selector: it comes
// from an unset variable of a script. For listing, the empty group also selects: jobs without a
// group.
func (f *deadFlags) check(flags *pflag.FlagSet, ids []string) error {
	f.IDs = ids
	if err := cmp.Or(cli.NotEmpty(flags, "key", "kind", "topic", "error", "subscription"),
		cli.Refuse(slices.Contains(f.IDs, ""), "an ID is empty: give one that penstock dead list NAME shows, or leave it out")); err != nil {
		return err
	}
	for _, seq := range f.Seqs {
		if seq < 1 {
			return terminal.Usage(fmt.Errorf("--seq is %d: give a seq that penstock dead list NAME shows", seq))
		}
	}
	f.noGroup = flags.Changed("group") && f.group == ""
	f.byName = len(f.IDs)+len(f.Seqs) > 0
	f.narrowed = f.byName || flags.Changed("older-than") || flags.Changed("newer-than") || f.Key != "" || f.Topic != "" || f.kind != "" || flags.Changed("group") || f.Error != ""
	return cmp.Or(
		cli.Refuse(f.Limit < 0 || flags.Changed("limit") && f.Limit == 0, "--limit is %d: use 1 or more, or leave it out", f.Limit),
		cli.Refuse(flags.Changed("older-than") && flags.Changed("newer-than") && f.olderThan >= f.newerThan,
			"--older-than is not less than --newer-than: nothing is both"),
		cli.Refuse(f.noGroup && !f.listing, "--group is empty: give it a text, or leave it out; penstock dead list NAME takes it, for the jobs without a group"),
		cli.Refuse(f.all && f.narrowed, "--all is given with flags that narrow the choice: leave it out, the rest takes every one that matches"))
}

// ofJobs is a flag that was given and is for queues alone, or "".
func (f *deadFlags) ofJobs() string {
	switch {
	case f.group != "" || f.noGroup:
		return "--group"
	case f.kind != "":
		return "--kind"
	}
	return ""
}

// died bounds the time at which dead letters died; a zero bound does not limit it. Times are this
// machine's.
func (f *deadFlags) died(flags *pflag.FlagSet) (before, after time.Time) {
	now := time.Now()
	if flags.Changed("older-than") {
		before = now.Add(-time.Duration(f.olderThan))
	}
	if flags.Changed("newer-than") {
		after = now.Add(-time.Duration(f.newerThan))
	}
	return before, after
}

func listCommand(a *cli.App) *cobra.Command {
	var f deadFlags
	cmd := terminal.Verb("list OUTBOX|QUEUE|SUBSCRIPTION [ID…]", "List dead letters with their last errors", func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		f.listing = true
		if err := f.check(cmd.Flags(), args[1:]); err != nil {
			return err
		}
		box, err := openDeadLetters(ctx, a, args[0], &f, cmd.Flags())
		if err != nil {
			return err
		}
		now, rows, first := time.Now(), a.Rows(box.columns...), ""
		if err := eachPage(ctx, box, f.Limit, func(page []letter) error {
			for _, l := range page {
				first = cmp.Or(first, l.argument)
				rows.Add(l.forPrograms(false), l.row(now)...)
			}
			return rows.Err()
		}); err != nil {
			return err
		}
		err = rows.End(fmt.Sprintf("0 dead letters of %s%s.", box.name, map[bool]string{true: " match"}[f.narrowed]))
		if err == nil && first != "" && !a.JSON {
			_, err = io.WriteString(a.Stdout, a.Suggest(fmt.Sprintf("\nNext: penstock dead show %s\n  or: penstock dead retry %[1]s\n", box.arguments+" "+first)))
		}
		return err
	})
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them, which is the default")
	return a.WithJSON(cmd, "one JSON line per dead letter, without payloads")
}

func showCommand(a *cli.App) *cobra.Command {
	var (
		f    deadFlags
		full bool
	)
	cmd := terminal.Verb("show OUTBOX|QUEUE|SUBSCRIPTION ID", "Show a dead letter with its payload and all errors",
		func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if len(args)-1+len(f.Seqs) != 1 {
				return terminal.Misuse(errors.New("it takes OUTBOX or QUEUE and an ID, or OUTBOX and one --seq"))
			}
			if err := f.check(cmd.Flags(), args[1:]); err != nil {
				return err
			}
			box, err := openDeadLetters(ctx, a, args[0], &f, cmd.Flags())
			if err != nil {
				return err
			}
			return showDead(ctx, a, box, full)
		})
	cmd.Args = terminal.Args(cobra.RangeArgs(1, 2)) // with --seq there is no ID
	flags := cmd.Flags()
	flags.StringVar(&f.Subscription, "subscription", "", "dead letter of this subscription, by its `name` (default: the outbox's only subscription)")
	flags.Int64SliceVar(&f.Seqs, "seq", nil, "the one with this `seq`, instead of ID")
	flags.Lookup("seq").DefValue = "" // not "[]"
	f.Flags.Add(flags)
	flags.BoolVar(&full, "full", false, "the whole payload, however long")
	return a.WithJSON(cmd, "one JSON line, with the whole payload")
}

func showDead(ctx context.Context, a *cli.App, box *deadLetters, full bool) error {
	shown := 0
	err := eachPage(ctx, box, 0, func(page []letter) (err error) {
		for _, l := range page {
			if a.JSON {
				err = json.NewEncoder(a.Stdout).Encode(l.forPrograms(true))
			} else {
				next := fmt.Sprintf("\nNext: penstock dead retry %s\n  or: penstock dead discard %[1]s\n", box.arguments+" "+l.argument)
				_, err = io.WriteString(a.Stdout, l.text(full, time.Now())+a.Suggest(next))
			}
			if err != nil {
				return err
			}
		}
		shown += len(page)
		return nil
	})
	if err != nil || shown > 0 {
		return err
	}
	return noDeadLetter(box, box.named)
}
