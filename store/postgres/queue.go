package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/shell"
)

var _ driver.QueueStore = (*Store)(nil)

// smallestSegment is the least that create_queue takes.
const smallestSegment = 64 << 10

// CreateQueue implements driver.QueueStore. The queue has Options.Segments segments, which
// are sealed at half the size of an outbox's.
func (s *Store) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := cmp.Or(penstock.ValidateQueueName(name), order.Validate()); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, "select "+s.table("create_queue")+"($1, $2, $3, $4)",
		name, string(cmp.Or(order, penstock.FIFO)), cmp.Or(s.opts.Segments, 3), max(smallestSegment, s.opts.SegmentBytes/2))
	if state := sqlState(err); state == "42P07" || state == "23505" {
		return s.queueExists(ctx, name, err)
	}
	return s.explain(err)
}

// queueExists shows whose the name is that create_queue refused.
func (s *Store) queueExists(ctx context.Context, name string, refused error) error {
	var queue, outbox bool
	err := s.pool.QueryRow(ctx, "select exists (select from "+s.table("_queue")+" where name = $1), exists (select from "+s.table("_outbox")+" where name = $1)",
		name).Scan(&queue, &outbox)
	switch {
	case err != nil:
		return s.explain(err)
	case queue:
		return fmt.Errorf("queue %q: %w", name, penstock.ErrQueueExists)
	case outbox:
		return penstock.WithHint(fmt.Errorf("queue %q: an outbox has this name: %w", name, penstock.ErrOutboxExists), "outboxes and queues share their names: choose another")
	}
	return penstock.WithHint(refused, "another table or index of schema %s has that name: choose another", s.schema)
}

// DropQueue implements driver.QueueStore.
func (s *Store) DropQueue(ctx context.Context, name string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.queueError(ctx, name, s.drop(ctx, "drop_queue", name))
}

// SetQueue implements driver.QueueStore. It changes all settings in one transaction.
func (s *Store) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	if err := set.Validate(); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if set.Paused == nil || set != (penstock.QueueSettings{Paused: set.Paused}) { // an operator may pause, and not change the others
			if _, err := tx.Exec(ctx, "select "+s.table("set_queue")+"($1, max_attempts => $2, max_running => $3, dedup_window => $4, keep_done => $5, keep_done_bytes => $6, rate => $7, per => $8, burst => nullif($9, 0))",
				append([]any{name, set.MaxAttempts, set.MaxRunning, set.DedupWindow, set.KeepDone, set.KeepDoneBytes}, rateArgs(set.Rate)...)...); err != nil {
				return err
			}
		}
		if set.Paused == nil {
			return nil
		}
		function := "resume_queue"
		if *set.Paused {
			function = "pause_queue"
		}
		_, err := tx.Exec(ctx, "select "+s.table(function)+"($1)", name)
		return err
	})
	return s.queueError(ctx, name, err)
}

// CancelJobs implements driver.QueueStore.
func (s *Store) CancelJobs(ctx context.Context, queue string, ids ...int64) (n int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, "select "+s.table("cancel")+"($1, $2)", queue, notNil(ids)).Scan(&n)
	return n, s.queueError(ctx, queue, err)
}

// onQueue runs a statement about one queue.
func (s *Store) onQueue(ctx context.Context, queue, sql string, args ...any) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, sql, args...)
	return s.queueError(ctx, queue, err)
}

func noQueue(name string) error {
	return penstock.WithHint(fmt.Errorf("%w: %q", penstock.ErrNoQueue, name),
		"create it with CreateQueue or penstock queue create %s; if it is an outbox, use PublishTx; in a new database begin with Migrate or penstock migrate", shell.Word(name))
}

// queueError turns the server's message about a queue into the contract's errors.
func (s *Store) queueError(ctx context.Context, queue string, err error) error {
	if absent := s.absent(ctx, queue, err); absent != nil {
		return absent
	}
	return s.explain(queueError(err, queue))
}

// absent is the error that a queue, or all of Penstock, is not in the schema, if the server could not find a table, a function or the schema. It is nil
// after another error.
func (s *Store) absent(ctx context.Context, queue string, err error) error {
	switch sqlState(err) {
	case "42P01", "42883", "3F000":
	default:
		return nil
	}
	if notReady := s.checkVersion(ctx); schema.Is(notReady) {
		return notReady
	}
	no := queueError(err, queue)
	names, failed := list(ctx, s.pool, pgx.RowTo[string], "select name from "+s.table("_queue")+" order by name limit $1", shownQueues+1)
	if failed != nil { // an enqueuer may not read it
		return no
	}
	has := "has no queue"
	if len(names) > 0 {
		has = fmt.Sprintf("has %q", names[:min(len(names), shownQueues)])
	}
	if len(names) > shownQueues {
		has += " and more"
	}
	return penstock.WithHint(fmt.Errorf("%w: %q", penstock.ErrNoQueue, queue), "schema %s %s; create it with CreateQueue or penstock queue create %s; if it is an outbox, use PublishTx", s.schema, has, shell.Word(queue))
}

const shownQueues = 20
