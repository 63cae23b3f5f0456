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

// deadMessages is deadLetters of a subscription.
type deadMessages struct {
	store   deadStore
	query   admin.DeadLetterQuery
	adopted *adopt.Table // the adopted table, or nil for an outbox
}

// ofSubscription is the flags' choice from a subscription. Times are this machine's.
func (f *deadFlags) ofSubscription(store deadStore, outbox, subscription string, flags *pflag.FlagSet) *deadMessages {
	q := f.DeadLetterQuery
	q.Outbox, q.Subscription, q.Limit = outbox, subscription, 0 // each page has its limit
	q.DiedBefore, q.DiedAfter = f.died(flags)
	return &deadMessages{store: store, query: q}
}

func (b *deadMessages) name() string { return cli.OfSubscription(b.query.Outbox, b.query.Subscription) }

func (b *deadMessages) arguments() string {
	if b.adopted != nil {
		return b.adopted.Argument()
	}
	return shell.Word(b.query.Outbox) + " --subscription " + shell.Word(b.query.Subscription)
}

func (b *deadMessages) identity() map[string]any {
	if b.adopted != nil {
		return map[string]any{"table": b.query.Outbox, "subscription": b.query.Subscription}
	}
	return map[string]any{"outbox": b.query.Outbox, "subscription": b.query.Subscription}
}

func (b *deadMessages) columns() []terminal.Column {
	return []terminal.Column{
		terminal.Right("SEQ"), terminal.Cut("ID", 40), terminal.Cut("KEY", 24), terminal.Cut("TOPIC", 24),
		terminal.Right("ATTEMPTS"), terminal.Left("AGE"), terminal.Left("HELD"), terminal.Cut("ERROR", 64),
	}
}

func (b *deadMessages) page(ctx context.Context, after int64, limit int) ([]letter, error) {
	q := b.query
	q.AfterSeq, q.Limit = after, limit
	found, err := b.store.DeadLetters(ctx, q)
	if err != nil {
		return nil, b.about(err, "reading dead letters")
	}
	page := make([]letter, len(found))
	for i := range found {
		page[i] = b.letter(&found[i])
	}
	return page, nil
}

// deadLetterJSON is a dead letter of a subscription for programs.
type deadLetterJSON struct {
	Seq   int64  `json:"seq"`
	ID    string `json:"id"`
	Key   string `json:"key"`
	Topic string `json:"topic"`
	death
}

func (b *deadMessages) letter(d *admin.DeadLetter) letter {
	m := &d.Message
	l := letter{
		number: m.Seq, names: []string{fmt.Sprintf("id %q", m.ID), fmt.Sprintf("seq %d", m.Seq)}, argument: fmt.Sprintf("--seq %d", m.Seq),
		size: m.Size(), payload: m.Payload,
		cells: []string{fmt.Sprint(m.Seq), m.ID, m.Key, m.Topic}, death: deathOf(m, d.At, d.Failures),
		facts: [][2]string{{"id", shell.Visible(m.ID)}, {"seq", fmt.Sprintf("%d of %s", m.Seq, b.name())}, orDash("topic", m.Topic), orDash("key", m.Key)},
		json:  func(d death) any { return deadLetterJSON{m.Seq, m.ID, m.Key, m.Topic, d} },
	}
	l.Held = &d.Held
	return l
}

func (b *deadMessages) named() (names []string) {
	for _, id := range b.query.IDs {
		names = append(names, fmt.Sprintf("id %q", id))
	}
	for _, seq := range b.query.Seqs {
		names = append(names, fmt.Sprintf("seq %d", seq))
	}
	return names
}

func (b *deadMessages) retry(ctx context.Context, seqs []int64) (int, error) {
	n, err := b.store.RetryDeadLetters(ctx, b.these(seqs))
	return n, b.about(err, "")
}

func (b *deadMessages) discard(ctx context.Context, seqs []int64) (int, error) {
	n, err := b.store.DiscardDeadLetters(ctx, b.these(seqs))
	return n, b.about(err, "")
}

func (b *deadMessages) resend(ctx context.Context, seqs []int64) (int, error) {
	store, ok := b.store.(driver.Store)
	if !ok || b.adopted != nil {
		return 0, errNoResend
	}
	sent, err := resend.Messages(ctx, store, b.query.Outbox, b.query.Subscription, seqs)
	return len(sent), b.about(err, "sending again")
}

func (b *deadMessages) these(seqs []int64) admin.DeadLetterQuery {
	q := b.query
	q.Seqs = seqs
	return q
}

func (b *deadMessages) about(err error, doing string) error {
	if b.adopted != nil {
		return b.adopted.About(err, doing)
	}
	return about.Outbox(err, doing, b.query.Outbox, b.query.Subscription)
}

// deadJobs is deadLetters of a queue.
type deadJobs struct {
	store cli.DeadJobStore
	query admin.DeadJobQuery
	// noGroup filters out jobs of groups, which the query cannot do: its empty Group means any.
	noGroup bool
}

// ofQueue is the flags' choice from a queue. Times are this machine's.
func (f *deadFlags) ofQueue(store cli.DeadJobStore, queue string, flags *pflag.FlagSet) (*deadJobs, error) {
	for _, name := range []string{"seq", "topic"} {
		if flags.Changed(name) {
			return nil, terminal.Usage(fmt.Errorf("--%s chooses among messages, and %s is a queue: its jobs have an --id, a --kind, a --key and a --group", name, shell.Visible(queue)))
		}
	}
	ids, err := cli.JobIDs(f.IDs)
	if err != nil {
		return nil, err
	}
	before, after := f.died(flags)
	return &deadJobs{store, admin.DeadJobQuery{
		Queue: queue, IDs: ids, Kind: f.kind, Key: f.Key, Group: f.group, Error: f.Error, DiedBefore: before, DiedAfter: after,
	}, f.noGroup}, nil
}

func (b *deadJobs) name() string             { return shell.Visible(b.query.Queue) }
func (b *deadJobs) arguments() string        { return shell.Word(b.query.Queue) }
func (b *deadJobs) identity() map[string]any { return map[string]any{"queue": b.query.Queue} }

func (b *deadJobs) columns() []terminal.Column {
	return []terminal.Column{
		terminal.Right("ID"), terminal.Cut("KIND", 24), terminal.Cut("KEY", 24), terminal.Cut("GROUP", 24),
		terminal.Right("ATTEMPTS"), terminal.Left("AGE"), terminal.Cut("ERROR", 64),
	}
}

func (b *deadJobs) page(ctx context.Context, after int64, limit int) ([]letter, error) {
	q := b.query
	q.AfterID, q.Limit = after, limit
	page := make([]letter, 0, limit)
	for {
		found, err := b.store.DeadJobs(ctx, q)
		if err != nil {
			return nil, about.Queue(err, "reading dead letters", q.Queue)
		}
		for i := range found {
			if q.AfterID = found[i].Job.ID; !b.noGroup || found[i].Job.Group == "" {
				page = append(page, b.letter(&found[i]))
			}
		}
		if len(found) < q.Limit || len(page) == limit {
			return page, nil
		}
		q.Limit = limit - len(page)
	}
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

func (b *deadJobs) letter(d *admin.DeadJob) letter {
	j := &d.Job
	m := &penstock.Message{Key: j.Key, Headers: j.Headers, Payload: j.Payload, CreatedAt: j.CreatedAt, Attempt: j.Attempt}
	l := letter{
		number: j.ID, names: []string{fmt.Sprintf("id %d", j.ID)}, argument: fmt.Sprintf("--id %d", j.ID),
		size: m.Size(), payload: j.Payload,
		cells: []string{fmt.Sprint(j.ID), j.Kind(), j.Key, j.Group}, death: deathOf(m, d.At, d.Failures),
		facts: [][2]string{{"id", fmt.Sprintf("%d of %s", j.ID, b.name())}, orDash("kind", j.Kind()), orDash("key", j.Key), orDash("group", j.Group),
			{"priority", fmt.Sprint(j.Priority)}},
		json: func(d death) any { return deadJobJSON{j.ID, j.Kind(), j.Key, j.Group, j.Priority, d} },
	}
	l.Report = j.Report
	return l
}

func (b *deadJobs) named() (names []string) {
	for _, id := range b.query.IDs {
		names = append(names, fmt.Sprintf("id %d", id))
	}
	return names
}

func (b *deadJobs) retry(ctx context.Context, ids []int64) (int, error) {
	n, err := b.store.RetryDeadJobs(ctx, b.these(ids))
	return n, about.Queue(err, "", b.query.Queue)
}

func (b *deadJobs) discard(ctx context.Context, ids []int64) (int, error) {
	n, err := b.store.DiscardDeadJobs(ctx, b.these(ids))
	return n, about.Queue(err, "", b.query.Queue)
}

func (b *deadJobs) resend(ctx context.Context, ids []int64) (int, error) {
	store, ok := b.store.(driver.QueueStore)
	if !ok {
		return 0, errNoResend
	}
	sent, err := resend.Jobs(ctx, store, b.query.Queue, ids)
	return len(sent), about.Queue(err, "sending again", b.query.Queue)
}

func (b *deadJobs) these(ids []int64) admin.DeadJobQuery {
	q := b.query
	q.IDs = ids
	return q
}
