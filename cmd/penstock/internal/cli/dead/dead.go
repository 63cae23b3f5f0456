// Package dead has penstock dead: dead letters of subscriptions and of queues.
package dead

import (
	"errors"
	"fmt"
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
	flags.StringArrayVar(&f.IDs, "id", nil, "those with this `id`; may be repeated")
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

// check reads which flags were given. An empty text is an error rather than no selector: it comes
// from an unset variable of a script. For listing, the empty group also selects: jobs without a
// group.
func (f *deadFlags) check(flags *pflag.FlagSet) error {
	for name, empty := range map[string]bool{"key": f.Key == "", "kind": f.kind == "", "topic": f.Topic == "", "error": f.Error == "", "subscription": f.Subscription == ""} {
		if flags.Changed(name) && empty {
			return terminal.Usage(fmt.Errorf("--%s is empty: give it a text, or leave it out", name))
		}
	}
	for _, id := range f.IDs {
		if id == "" {
			return terminal.Usage(errors.New("--id is empty: give an id that penstock dead list NAME shows, or leave it out"))
		}
	}
	for _, seq := range f.Seqs {
		if seq < 1 {
			return terminal.Usage(fmt.Errorf("--seq is %d: give a seq that penstock dead list NAME shows", seq))
		}
	}
	if f.Limit < 0 || flags.Changed("limit") && f.Limit == 0 {
		return terminal.Usage(fmt.Errorf("--limit is %d: use 1 or more, or leave it out", f.Limit))
	}
	if flags.Changed("older-than") && flags.Changed("newer-than") && f.olderThan >= f.newerThan {
		return terminal.Usage(errors.New("--older-than is not less than --newer-than: nothing is both"))
	}
	f.noGroup = flags.Changed("group") && f.group == ""
	if f.noGroup && !f.listing {
		return terminal.Usage(errors.New("--group is empty: give it a text, or leave it out; penstock dead list NAME takes it, for the jobs without a group"))
	}
	f.byName = len(f.IDs)+len(f.Seqs) > 0
	f.narrowed = f.byName || flags.Changed("older-than") || flags.Changed("newer-than") || f.Key != "" || f.Topic != "" || f.kind != "" || flags.Changed("group") || f.Error != ""
	if f.all && f.narrowed {
		return terminal.Usage(errors.New("--all is given with flags that narrow the choice: leave it out, the rest takes every one that matches"))
	}
	return nil
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
