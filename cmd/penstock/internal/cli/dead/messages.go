package dead

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/adopt"
	"github.com/penstock/penstock/cmd/penstock/internal/resend"
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
	before, after := f.died(flags)
	return &deadMessages{store: store, query: admin.DeadLetterQuery{
		Outbox: outbox, Subscription: subscription, IDs: f.ids, Seqs: f.seqs, Key: f.key, Topic: f.topic, Error: f.errorText,
		DiedBefore: before, DiedAfter: after,
	}}
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

func (b *deadMessages) page(ctx context.Context, after int64, limit int) ([]deadLetter, error) {
	q := b.query
	q.AfterSeq, q.Limit = after, limit
	found, err := b.store.DeadLetters(ctx, q)
	if err != nil {
		return nil, b.about(err, "reading dead letters")
	}
	page := make([]deadLetter, len(found))
	for i := range found {
		page[i] = &deadMessage{found[i], b}
	}
	return page, nil
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
	store, ok := b.store.(interface {
		deadStore
		Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error
	})
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

// deadMessage is a dead letter of a subscription.
type deadMessage struct {
	admin.DeadLetter
	box *deadMessages
}

func (d *deadMessage) number() int64 { return d.Message.Seq }
func (d *deadMessage) size() int     { return d.Message.Size() }

func (d *deadMessage) names() []string {
	return []string{fmt.Sprintf("id %q", d.Message.ID), fmt.Sprintf("seq %d", d.Message.Seq)}
}

func (d *deadMessage) arguments() string {
	return fmt.Sprintf("%s --seq %d", d.box.arguments(), d.Message.Seq)
}

func (d *deadMessage) attempts() int { return attemptsOf(d.Message.Attempt, d.Failures) }

func (d *deadMessage) row(now time.Time) []string {
	m := &d.Message
	return []string{fmt.Sprint(m.Seq), m.ID, m.Key, m.Topic, fmt.Sprint(d.attempts()), cli.Since(d.At, now), terminal.YesNo(d.Held), d.Err()}
}

func (d *deadMessage) text(full bool, now time.Time) string {
	var out cli.DeadLetterText
	m := &d.Message
	out.Line("id", "%s", shell.Visible(m.ID))
	out.Line("seq", "%d of %s", m.Seq, d.box.name())
	out.Line("topic", "%s", terminal.OrDash(shell.Visible(m.Topic)))
	out.Line("key", "%s", terminal.OrDash(shell.Visible(m.Key)))
	out.Times(m.CreatedAt, d.At, now, d.attempts())
	if d.Held {
		out.Line("held", "yes: later messages of its key wait until it is retried or discarded")
	}
	out.Headers(m.Headers)
	out.Failures(d.Failures)
	out.Payload(m.Payload, full)
	return out.String()
}

// deadLetterJSON is a dead letter of a subscription for programs.
type deadLetterJSON struct {
	Seq          int64              `json:"seq"`
	ID           string             `json:"id"`
	Key          string             `json:"key"`
	Topic        string             `json:"topic"`
	Headers      map[string]string  `json:"headers,omitempty"`
	PayloadBytes int                `json:"payload_bytes"`
	CreatedAt    time.Time          `json:"created_at"`
	DiedAt       time.Time          `json:"died_at"`
	Attempts     int                `json:"attempts"`
	Held         bool               `json:"held"`
	Error        string             `json:"error"`
	Failures     []penstock.Failure `json:"failures"`
	cli.PayloadJSON
}

func (d *deadMessage) json(withPayload bool) any {
	m := &d.Message
	j := &deadLetterJSON{
		Seq: m.Seq, ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers,
		PayloadBytes: len(m.Payload), CreatedAt: m.CreatedAt.UTC(), DiedAt: d.At.UTC(), Attempts: d.attempts(),
		Held: d.Held, Error: d.Err(), Failures: cli.NotNull(d.Failures),
	}
	if withPayload {
		j.PayloadJSON = cli.PayloadFor(m.Payload)
	}
	return j
}
