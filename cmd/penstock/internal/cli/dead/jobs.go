package dead

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/about"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/resend"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// deadJobs is deadLetters of a queue.
type deadJobs struct {
	store cli.DeadJobStore
	query admin.DeadJobQuery
	// noGroup filters out jobs of groups, which the query cannot do: its empty Group means any.
	noGroup bool
	kind    string // filters out the others
}

// ofQueue is the flags' choice from a queue. Times are this machine's.
func (f *deadFlags) ofQueue(store cli.DeadJobStore, queue string, flags *pflag.FlagSet) (*deadJobs, error) {
	for _, name := range []string{"seq", "topic"} {
		if flags.Changed(name) {
			return nil, terminal.Usage(fmt.Errorf("--%s chooses among messages, and %s is a queue: its jobs have an --id, a --kind, a --key and a --group", name, shell.Visible(queue)))
		}
	}
	ids, err := cli.JobIDs(f.ids)
	if err != nil {
		return nil, err
	}
	before, after := f.died(flags)
	return &deadJobs{store, admin.DeadJobQuery{
		Queue: queue, IDs: ids, Key: f.key, Group: f.group, Error: f.errorText, DiedBefore: before, DiedAfter: after,
	}, f.noGroup, f.kind}, nil
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

func (b *deadJobs) page(ctx context.Context, after int64, limit int) ([]deadLetter, error) {
	q := b.query
	q.AfterID, q.Limit = after, limit
	page := make([]deadLetter, 0, limit)
	for {
		found, err := b.store.DeadJobs(ctx, q)
		if err != nil {
			return nil, about.Queue(err, "reading dead letters", q.Queue)
		}
		for i := range found {
			if q.AfterID = found[i].Job.ID; (!b.noGroup || found[i].Job.Group == "") && (b.kind == "" || found[i].Job.Kind() == b.kind) {
				page = append(page, &deadJob{found[i], b})
			}
		}
		if len(found) < q.Limit || len(page) == limit {
			return page, nil
		}
		q.Limit = limit - len(page)
	}
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
	store, ok := b.store.(interface {
		cli.DeadJobStore
		DriverQueue(name string) driver.Queue
	})
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

// deadJob is a dead letter of a queue.
type deadJob struct {
	admin.DeadJob
	box *deadJobs
}

func (d *deadJob) number() int64   { return d.Job.ID }
func (d *deadJob) names() []string { return []string{fmt.Sprintf("id %d", d.Job.ID)} }
func (d *deadJob) attempts() int   { return attemptsOf(d.Job.Attempt, d.Failures) }

func (d *deadJob) arguments() string {
	return fmt.Sprintf("%s --id %d", d.box.arguments(), d.Job.ID)
}

func (d *deadJob) size() int {
	carried := penstock.Message{Key: d.Job.Key, Headers: d.Job.Headers, Payload: d.Job.Payload}
	return carried.Size()
}

func (d *deadJob) row(now time.Time) []string {
	j := &d.Job
	return []string{fmt.Sprint(j.ID), j.Kind(), j.Key, j.Group, fmt.Sprint(d.attempts()), cli.Since(d.At, now), d.Err()}
}

func (d *deadJob) text(full bool, now time.Time) string {
	var out cli.DeadLetterText
	j := &d.Job
	out.Line("id", "%d of %s", j.ID, d.box.name())
	out.Line("kind", "%s", terminal.OrDash(shell.Visible(j.Kind())))
	out.Line("key", "%s", terminal.OrDash(shell.Visible(j.Key)))
	out.Line("group", "%s", terminal.OrDash(shell.Visible(j.Group)))
	out.Line("priority", "%d", j.Priority)
	out.Times(j.CreatedAt, d.At, now, d.attempts())
	out.Headers(j.Headers)
	if j.Report != nil {
		out.Line("report", "%s", shell.Visible(string(j.Report)))
	}
	out.Failures(d.Failures)
	out.Payload(j.Payload, full)
	return out.String()
}

// deadJobJSON is a dead letter of a queue for programs.
type deadJobJSON struct {
	ID           int64              `json:"id"`
	Kind         string             `json:"kind"`
	Key          string             `json:"key"`
	Group        string             `json:"group"`
	Priority     int                `json:"priority"`
	Headers      map[string]string  `json:"headers,omitempty"`
	Report       json.RawMessage    `json:"report,omitempty"`
	PayloadBytes int                `json:"payload_bytes"`
	CreatedAt    time.Time          `json:"created_at"`
	DiedAt       time.Time          `json:"died_at"`
	Attempts     int                `json:"attempts"`
	Error        string             `json:"error"`
	Failures     []penstock.Failure `json:"failures"`
	cli.PayloadJSON
}

func (d *deadJob) json(withPayload bool) any {
	m := &d.Job
	j := &deadJobJSON{
		ID: m.ID, Kind: m.Kind(), Key: m.Key, Group: m.Group, Priority: m.Priority, Headers: m.Headers, Report: m.Report,
		PayloadBytes: len(m.Payload), CreatedAt: m.CreatedAt.UTC(), DiedAt: d.At.UTC(), Attempts: d.attempts(),
		Error: d.Err(), Failures: cli.NotNull(d.Failures),
	}
	if withPayload {
		j.PayloadJSON = cli.PayloadFor(m.Payload)
	}
	return j
}
