package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
)

func (a *app) deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at dead letters, send them again or discard them",
		Long: `A message becomes a dead letter when its attempts are used up, or when the sink
refuses it for good. It is kept, with the reasons, until someone decides: retry
sends it again, discard deletes it. Nothing else ever removes one.

Where on_dead is hold, the later messages of the key wait for that decision too;
list shows such letters as held.

  penstock dead list orders                    what there is, and why
  penstock dead show orders ID                 one of them, with its payload
  penstock dead retry orders --key 42          the cause is mended: send again
  penstock dead discard orders --id ID         it will never be wanted`,
		Args: knownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.deadListCommand(), a.deadShowCommand(), a.deadRetryCommand(), a.deadDiscardCommand())
	return cmd
}

// deadReader is what looking at dead letters needs of a store.
type deadReader interface {
	statusReader
	DeadLetters(ctx context.Context, q penstock.DeadLetterQuery) ([]penstock.DeadLetter, error)
}

// deadFlags choose dead letters of one subscription.
type deadFlags struct {
	subscription          string
	ids                   []string
	seqs                  []int64
	key, topic, errorText string
	olderThan, newerThan  span
	limit                 int
	all                   bool
	narrowed, byName      bool // whether anything was chosen, and by ids or seqs
}

func (f *deadFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.subscription, "subscription", "", "whose dead letters (default: the outbox's only subscription)")
	flags.StringArrayVar(&f.ids, "id", nil, "those with this id; may be repeated")
	flags.Int64SliceVar(&f.seqs, "seq", nil, "those with this seq; may be repeated")
	flags.StringVar(&f.key, "key", "", "those of this key")
	flags.StringVar(&f.topic, "topic", "", "those of this topic")
	flags.StringVar(&f.errorText, "error", "", "those whose last error contains this text")
	flags.Var(&f.olderThan, "older-than", "those that died longer ago, such as 90s, 24h or 7d")
	flags.Var(&f.newerThan, "newer-than", "those that died since then")
	flags.IntVar(&f.limit, "limit", 0, "at most so many, the first by seq")
}

const deadSelectorsHelp = `Which ones is said by --id, --seq, --key, --topic, --error, --older-than and
--newer-than; what is given together must all hold.`

// check reads which flags were given. An empty text is an error rather than no
// selector at all: it is how an unset variable of a script looks.
func (f *deadFlags) check(flags *pflag.FlagSet) error {
	for name, empty := range map[string]bool{"key": f.key == "", "topic": f.topic == "", "error": f.errorText == "", "subscription": f.subscription == ""} {
		if flags.Changed(name) && empty {
			return usage(fmt.Errorf("--%s is empty: give it a text, or leave it out", name))
		}
	}
	for _, id := range f.ids {
		if id == "" {
			return usage(errors.New("--id is empty: give an id that penstock dead list shows, or leave it out"))
		}
	}
	for _, seq := range f.seqs {
		if seq < 1 {
			return usage(fmt.Errorf("--seq is %d: give a seq that penstock dead list shows", seq))
		}
	}
	if f.limit < 0 || flags.Changed("limit") && f.limit == 0 {
		return usage(fmt.Errorf("--limit is %d: use 1 or more, or leave it out", f.limit))
	}
	if flags.Changed("older-than") && flags.Changed("newer-than") && f.olderThan >= f.newerThan {
		return usage(errors.New("--older-than is not less than --newer-than: nothing is both"))
	}
	f.byName = len(f.ids)+len(f.seqs) > 0
	f.narrowed = f.byName || flags.Changed("older-than") || flags.Changed("newer-than") || f.key != "" || f.topic != "" || f.errorText != ""
	if f.all && f.narrowed {
		return usage(errors.New("--all is given together with what narrows the choice: use one of them"))
	}
	return nil
}

// query is what to ask a store for. Times are this machine's.
func (f *deadFlags) query(outbox, subscription string, flags *pflag.FlagSet) penstock.DeadLetterQuery {
	q := penstock.DeadLetterQuery{
		Outbox: outbox, Subscription: subscription, IDs: f.ids, Seqs: f.seqs, Key: f.key, Topic: f.topic, Error: f.errorText,
	}
	now := time.Now()
	if flags.Changed("older-than") {
		q.DiedBefore = now.Add(-time.Duration(f.olderThan))
	}
	if flags.Changed("newer-than") {
		q.DiedAfter = now.Add(-time.Duration(f.newerThan))
	}
	return q
}

// Pages of dead letters begin small and grow as far as their payloads let them.
const (
	firstPage, largestPage = 16, 500
	pageBytes              = 16 << 20
)

// eachPage hands the dead letters of q to see, page by page in order of seq, up
// to limit of them (0: all). No page is empty.
func eachPage(ctx context.Context, store deadReader, q penstock.DeadLetterQuery, limit int, see func([]penstock.DeadLetter) error) error {
	size := firstPage
	for seen := 0; limit == 0 || seen < limit; {
		q.Limit = size
		if limit > 0 {
			q.Limit = min(size, limit-seen)
		}
		page, err := store.DeadLetters(ctx, q)
		if err != nil {
			return about(err, "reading dead letters", q.Outbox, q.Subscription)
		}
		if len(page) == 0 {
			return nil
		}
		if err := see(page); err != nil {
			return err
		}
		if len(page) < q.Limit {
			return nil
		}
		seen += len(page)
		q.AfterSeq = page[len(page)-1].Message.Seq
		size = nextPage(size, page)
	}
	return nil
}

func nextPage(size int, page []penstock.DeadLetter) int {
	bytes := 0
	for i := range page {
		bytes += page[i].Message.Size()
	}
	switch {
	case bytes > 2*pageBytes:
		return max(size/4, 1)
	case bytes < pageBytes/4:
		return min(size*4, largestPage)
	}
	return size
}

// attempts that a dead letter has had.
func attempts(d *penstock.DeadLetter) int {
	n := d.Message.Attempt
	if len(d.Failures) > 0 {
		n = max(n, d.Failures[len(d.Failures)-1].Attempt)
	}
	return n
}

// ofSubscription names one, as in orders/billing.
func ofSubscription(outbox, subscription string) string {
	return visible(outbox) + "/" + visible(subscription)
}

// noDeadLetter is the error for ids and seqs that name none.
func noDeadLetter(q penstock.DeadLetterQuery, ids []string, seqs []int64) error {
	var named []string
	for _, id := range ids {
		named = append(named, fmt.Sprintf("id %q", id))
	}
	for _, seq := range seqs {
		named = append(named, fmt.Sprintf("seq %d", seq))
	}
	return penstock.WithHint(fmt.Errorf("%s has no such dead letter: %s", ofSubscription(q.Outbox, q.Subscription), strings.Join(named, ", ")),
		"penstock dead list shows those there are; one that was sent back is not among them until it dies again")
}
