package console

import (
	"context"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/resend"
)

// mostRead is the number of payload bytes with which a page ends. Less of them is shown, but all must be searched.
const mostRead = 8 << 20

// ends reports whether a page is full: there may be more.
func ends(page []DeadLetter, limit int) bool {
	bytes := int64(0)
	for _, d := range page {
		bytes += d.PayloadBytes
	}
	return len(page) == limit || bytes >= mostRead
}

// box is a source of dead letters.
type box interface {
	page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error)
	causes(ctx context.Context, f Filter, limit int) ([]admin.DeadCause, error)
	retry(ctx context.Context, f Filter, limit int) (int, error)
	discard(ctx context.Context, f Filter, limit int) (int, error)
	numbers(ctx context.Context, after int64) ([]int64, error)
	// resend sends new ones with the contents of the dead letters of these numbers.
	resend(ctx context.Context, numbers []int64) (ids []string, err error)
	name() (kind, name string)
}

type jobBox struct {
	c     *Console
	queue string
}

func (b jobBox) name() (string, string) { return "queue", b.queue }

func (b jobBox) numbers(ctx context.Context, after int64) ([]int64, error) {
	return b.c.o.Store.DeadNumbers(ctx, b.queue, "", after, window)
}

func (b jobBox) query(f Filter, limit int) admin.DeadJobQuery {
	return admin.DeadJobQuery{Queue: b.queue, IDs: f.Numbers, Kind: f.Kind, Key: f.Key, Group: f.Group, Error: f.Error, DiedBefore: f.DiedBefore, DiedAfter: f.DiedAfter, Limit: limit}
}

func (b jobBox) page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error) {
	q := b.query(f, limit)
	q.AfterID, q.Bytes = after, mostRead
	found, err := b.c.o.Store.DeadJobs(ctx, q)
	all := make([]DeadLetter, len(found))
	for i, d := range found {
		j := &d.Job
		all[i] = DeadLetter{Number: j.ID, Key: j.Key, Group: j.Group, Attempts: attempts(j.Attempt, d.Failures), CreatedAt: j.CreatedAt, DiedAt: d.At, Error: d.Err(), Failures: orNone(d.Failures), Contents: b.c.contents(j.Headers, j.Payload)}
	}
	return all, err
}

func (b jobBox) causes(ctx context.Context, f Filter, limit int) ([]admin.DeadCause, error) {
	return b.c.o.Store.DeadJobCauses(ctx, b.query(f, limit))
}

func (b jobBox) retry(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.RetryDeadJobs(ctx, b.query(f, limit))
}

func (b jobBox) discard(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.DiscardDeadJobs(ctx, b.query(f, limit))
}

func (b jobBox) resend(ctx context.Context, numbers []int64) (ids []string, err error) {
	return resend.Jobs(ctx, b.c.o.Store, b.queue, numbers)
}

type messageBox struct {
	c                    *Console
	outbox, subscription string
}

func (b messageBox) name() (string, string) { return "subscription", b.outbox + "/" + b.subscription }

func (b messageBox) numbers(ctx context.Context, after int64) ([]int64, error) {
	return b.c.o.Store.DeadNumbers(ctx, b.outbox, b.subscription, after, window)
}

func (b messageBox) query(f Filter, limit int) admin.DeadLetterQuery {
	return admin.DeadLetterQuery{Outbox: b.outbox, Subscription: b.subscription, Seqs: f.Numbers, Key: f.Key, Topic: f.Topic, Error: f.Error, DiedBefore: f.DiedBefore, DiedAfter: f.DiedAfter, Limit: limit}
}

func (b messageBox) page(ctx context.Context, f Filter, after int64, limit int) ([]DeadLetter, error) {
	q := b.query(f, limit)
	q.AfterSeq, q.Bytes = after, mostRead
	found, err := b.c.o.Store.DeadLetters(ctx, q)
	return b.c.letters(found), err
}

func (c *Console) letters(found []admin.DeadLetter) []DeadLetter {
	all := make([]DeadLetter, len(found))
	for i, d := range found {
		m := &d.Message
		all[i] = DeadLetter{Number: m.Seq, ID: m.ID, Key: m.Key, Topic: m.Topic, Attempts: attempts(m.Attempt, d.Failures), Held: d.Held, CreatedAt: m.CreatedAt, DiedAt: d.At, Error: d.Err(), Failures: orNone(d.Failures), Contents: c.contents(m.Headers, m.Payload)}
	}
	return all
}

func (b messageBox) causes(ctx context.Context, f Filter, limit int) ([]admin.DeadCause, error) {
	return b.c.o.Store.DeadLetterCauses(ctx, b.query(f, limit))
}

func (b messageBox) retry(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.RetryDeadLetters(ctx, b.query(f, limit))
}

func (b messageBox) resend(ctx context.Context, numbers []int64) (ids []string, err error) {
	return resend.Messages(ctx, b.c.o.Store, b.outbox, b.subscription, numbers)
}

func (b messageBox) discard(ctx context.Context, f Filter, limit int) (int, error) {
	return b.c.o.Store.DiscardDeadLetters(ctx, b.query(f, limit))
}

func attempts(n int, failures []penstock.Failure) int {
	if len(failures) > 0 {
		return max(n, failures[len(failures)-1].Attempt)
	}
	return n
}

func orNone(failures []penstock.Failure) []penstock.Failure {
	return append([]penstock.Failure{}, failures...)
}
