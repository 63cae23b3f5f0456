package dead

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/resend"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// deadStore has the methods of a store that dead letters of a subscription need.
type deadStore interface {
	DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error)
	RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
	DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error)
}

// ofSubscription is the flags' choice from a subscription, of an outbox or of an adopted table. Times are this machine's.
func (f *deadFlags) ofSubscription(store deadStore, outbox, subscription string, adopted *adopt.Table, flags *pflag.FlagSet) *deadLetters {
	q := f.DeadLetterQuery
	q.Outbox, q.Subscription, q.Limit = outbox, subscription, 0 // each page has its limit
	q.DiedBefore, q.DiedAfter = f.died(flags)
	box := &deadLetters{
		name:      cli.OfSubscription(outbox, subscription),
		arguments: shell.Word(outbox) + " --subscription " + shell.Word(subscription),
		identity:  map[string]any{"outbox": outbox, "subscription": subscription},
		columns: []terminal.Column{
			terminal.Right("SEQ"), terminal.Cut("ID", 40), terminal.Cut("KEY", 24), terminal.Cut("TOPIC", 24),
			terminal.Right("ATTEMPTS"), terminal.Left("AGE"), terminal.Left("HELD"), terminal.Cut("ERROR", 64),
		},
	}
	of := func(err error, doing string) error { return about.Outbox(err, doing, outbox, subscription) }
	if adopted != nil {
		box.arguments, box.identity, of = adopted.Argument(), map[string]any{"table": outbox, "subscription": subscription}, adopted.About
	}
	for _, id := range q.IDs {
		box.named = append(box.named, fmt.Sprintf("id %q", id))
	}
	for _, seq := range q.Seqs {
		box.named = append(box.named, fmt.Sprintf("seq %d", seq))
	}
	box.page = func(ctx context.Context, after int64, limit int) (page []letter, err error) {
		q := q
		q.AfterSeq, q.Limit = after, limit
		found, err := store.DeadLetters(ctx, q)
		for i := range found {
			page = append(page, messageLetter(box.name, &found[i]))
		}
		return page, of(err, "reading dead letters")
	}
	acts := func(do func(context.Context, admin.DeadLetterQuery) (int, error)) act {
		return func(ctx context.Context, seqs []int64) (int, error) {
			q := q
			q.Seqs = seqs
			n, err := do(ctx, q)
			return n, of(err, "")
		}
	}
	box.retry, box.discard = acts(store.RetryDeadLetters), acts(store.DiscardDeadLetters)
	box.resend = func(discard act) act {
		return func(ctx context.Context, seqs []int64) (int, error) {
			store, ok := store.(driver.Store)
			if !ok || adopted != nil {
				return 0, errNoResend
			}
			sent, err := resend.Messages(ctx, store, outbox, subscription, seqs, resend.Discard(discard))
			return len(sent), of(err, "sending again")
		}
	}
	return box
}

// deadLetterJSON is a dead letter of a subscription for programs.
type deadLetterJSON struct {
	Seq   int64  `json:"seq"`
	ID    string `json:"id"`
	Key   string `json:"key"`
	Topic string `json:"topic"`
	death
}

func messageLetter(of string, d *admin.DeadLetter) letter {
	m := &d.Message
	l := letter{
		number: m.Seq, names: []string{fmt.Sprintf("id %q", m.ID), fmt.Sprintf("seq %d", m.Seq)}, argument: fmt.Sprintf("--seq %d", m.Seq),
		size: m.Size(), payload: m.Payload,
		cells: []string{fmt.Sprint(m.Seq), m.ID, m.Key, m.Topic}, death: deathOf(m, d.At, d.Failures),
		facts: [][2]string{{"id", shell.Visible(m.ID)}, {"seq", fmt.Sprintf("%d of %s", m.Seq, of)}, orDash("topic", m.Topic), orDash("key", m.Key)},
		json:  func(d death) any { return deadLetterJSON{m.Seq, m.ID, m.Key, m.Topic, d} },
	}
	l.Held = &d.Held
	return l
}

// ofQueue is the flags' choice from a queue. Times are this machine's.
func (f *deadFlags) ofQueue(store driver.Database, queue string, flags *pflag.FlagSet) (*deadLetters, error) {
	for _, name := range []string{"seq", "topic"} {
		if flags.Changed(name) {
			return nil, terminal.Usage(fmt.Errorf("--%s chooses among messages, and %s is a queue: its jobs have an ID, a --kind, a --key and a --group", name, shell.Visible(queue)))
		}
	}
	ids, err := cli.JobIDs(f.IDs)
	if err != nil {
		return nil, err
	}
	q := admin.DeadJobQuery{Queue: queue, IDs: ids, Kind: f.kind, Key: f.Key, Group: f.group, Error: f.Error}
	q.DiedBefore, q.DiedAfter = f.died(flags)
	box := &deadLetters{
		name: shell.Visible(queue), arguments: shell.Word(queue), identity: map[string]any{"queue": queue},
		columns: []terminal.Column{
			terminal.Right("ID"), terminal.Cut("KIND", 24), terminal.Cut("KEY", 24), terminal.Cut("GROUP", 24),
			terminal.Right("ATTEMPTS"), terminal.Left("AGE"), terminal.Cut("ERROR", 64),
		},
	}
	for _, id := range ids {
		box.named = append(box.named, fmt.Sprintf("id %d", id))
	}
	box.page = func(ctx context.Context, after int64, limit int) (page []letter, err error) {
		q := q
		for q.AfterID = after; ; {
			q.Limit = limit - len(page)
			found, err := store.DeadJobs(ctx, q)
			if err != nil {
				return nil, about.Queue(err, "reading dead letters", queue)
			}
			for i := range found { // the query cannot leave out jobs of groups: its empty Group means any
				if q.AfterID = found[i].Job.ID; !f.noGroup || found[i].Job.Group == "" {
					page = append(page, jobLetter(box.name, &found[i]))
				}
			}
			if len(found) < q.Limit || len(page) == limit {
				return page, nil
			}
		}
	}
	acts := func(do func(context.Context, admin.DeadJobQuery) (int, error)) act {
		return func(ctx context.Context, ids []int64) (int, error) {
			q := q
			q.IDs = ids
			n, err := do(ctx, q)
			return n, about.Queue(err, "", queue)
		}
	}
	box.retry, box.discard = acts(store.RetryDeadJobs), acts(store.DiscardDeadJobs)
	box.resend = func(discard act) act {
		return func(ctx context.Context, ids []int64) (int, error) {
			sent, err := resend.Jobs(ctx, store, queue, ids, resend.Discard(discard))
			return len(sent), about.Queue(err, "sending again", queue)
		}
	}
	return box, nil
}

// deadJobJSON is a dead letter of a queue for programs.
type deadJobJSON struct {
	ID       int64  `json:"id"`
	Kind     string `json:"kind"`
	Key      string `json:"key"`
	Group    string `json:"group"`
	Priority int    `json:"priority"`
	death
}

func jobLetter(of string, d *admin.DeadJob) letter {
	j := &d.Job
	m := &penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload, CreatedAt: j.CreatedAt, Attempt: j.Attempt}
	l := letter{
		number: j.ID, names: []string{fmt.Sprintf("id %d", j.ID)}, argument: fmt.Sprint(j.ID),
		size: m.Size(), payload: j.Payload,
		cells: []string{fmt.Sprint(j.ID), j.Kind(), j.Key, j.Group}, death: deathOf(m, d.At, d.Failures),
		facts: [][2]string{{"id", fmt.Sprintf("%d of %s", j.ID, of)}, orDash("kind", j.Kind()), orDash("key", j.Key), orDash("group", j.Group),
			{"priority", fmt.Sprint(j.Priority)}},
		json: func(d death) any { return deadJobJSON{j.ID, j.Kind(), j.Key, j.Group, j.Priority, d} },
	}
	l.Report = j.Report
	return l
}
