package portable

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/tables"
)

var _ penstock.QueueStore = (*Store)(nil)

// queueRow is what does not change of a row of the queues, and what claims have seen.
type queueRow struct {
	id   int64
	name string
	*tables.Seen
}

// CreateQueue implements penstock.QueueStore.
func (s *Store) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := cmp.Or(penstock.ValidateQueueName(name), order.Validate()); err != nil {
		return err
	}
	return s.tx(ctx, func(tx pgx.Tx) error {
		if err := s.nameFree(ctx, tx, "queue", name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql("insert into {schema}.queues (name, lifo) values ($1, $2)", ""), name, order == penstock.LIFO); err != nil {
			return err
		}
		// A table that is there is left from somebody who died on the way.
		for _, statement := range []string{"drop table if exists {table}", "create_queue", "create index on {table} (key, ts, seq) where key <> ''"} {
			if err := s.define(ctx, s.queueSQL(statement, name, order == penstock.LIFO)); err != nil {
				return err
			}
		}
		return nil
	})
}

// nameFree is an error if an outbox or a queue has the name, which is to be one of kind. Nobody else makes one meanwhile.
func (s *Store) nameFree(ctx context.Context, tx pgx.Tx, kind, name string) error {
	if _, err := tx.Exec(ctx, s.sql("select version from {schema}.version for update", "")); err != nil {
		return err
	}
	var has string
	err := tx.QueryRow(ctx, s.sql("select 'outbox' from {schema}.outboxes where name = $1 union all select 'queue' from {schema}.queues where name = $1", ""), name).Scan(&has)
	if isNoRows(err) {
		return nil
	}
	return cmp.Or(err, tables.Taken(kind, name, has))
}

// DropQueue implements penstock.QueueStore.
func (s *Store) DropQueue(ctx context.Context, name string) error {
	err := s.tx(ctx, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, s.sql("select id from {schema}.queues where name = $1 for update", ""), name).Scan(&id); err != nil {
			return orNoQueue(err, name)
		}
		b := &pgx.Batch{}
		for _, table := range []string{"leases", "tries", "dead_jobs", "dedup", "schedules"} {
			b.Queue(s.sql("delete from {schema}."+table+" where queue_id = $1", ""), id)
		}
		b.Queue(s.sql("delete from {schema}.queues where id = $1", ""), id)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return s.define(ctx, s.queueSQL("drop table if exists {table}", name, false))
	})
	s.queues.Delete(name)
	return err
}

// SetQueue implements penstock.QueueStore.
func (s *Store) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	if err := set.ValidateWithoutHistory(); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	var done pgconn.CommandTag
	err := s.retries.Do(ctx, func() (err error) {
		done, err = s.pool.Exec(ctx, s.sql(`update {schema}.queues set paused = coalesce($2, paused), max_attempts = coalesce($3, max_attempts),
			max_running = coalesce($4, max_running), dedup_window = coalesce($5, dedup_window) where name = $1`, ""),
			name, set.Paused, set.MaxAttempts, set.MaxRunning, (*int64)(set.DedupWindow))
		return err
	})
	if err == nil && done.RowsAffected() == 0 {
		return tables.NoQueue(name)
	}
	return s.explain(err)
}

// findQueue knows a queue from before, or looks. One that was made anew since has another id: what
// is asked then finds nothing, and forgetQueue is called.
func (s *Store) findQueue(ctx context.Context, name string) (*queueRow, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if q, ok := s.queues.Load(name); ok {
		return q.(*queueRow), nil
	}
	q := &queueRow{name: name}
	var lifo bool
	if err := s.pool.QueryRow(ctx, s.sql("select id, lifo from {schema}.queues where name = $1", ""), name).Scan(&q.id, &lifo); err != nil {
		return nil, s.explain(orNoQueue(err, name))
	}
	q.Seen = tables.NewSeen(lifo)
	found, _ := s.queues.LoadOrStore(name, q)
	return found.(*queueRow), nil
}

// queueSQL is a statement about a queue.
func (s *Store) queueSQL(statement, name string, lifo bool) string {
	statement = s.text(statement)
	direction := "asc"
	if lifo {
		direction = "desc"
	}
	statement = strings.ReplaceAll(statement, "{blocked}", "("+s.text("blocked")+")")
	statement = strings.NewReplacer("{table}", pgx.Identifier{s.opts.Schema, "queue_" + name}.Sanitize(), "{dir}", direction).Replace(statement)
	return s.sql(statement, "")
}

// send sends statements in one round trip, which are one transaction.
func (s *Store) send(ctx context.Context, queue string, fill func(b *pgx.Batch)) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.explain(orNoQueue(s.retries.Do(ctx, func() error {
		b := &pgx.Batch{}
		fill(b)
		return s.pool.SendBatch(ctx, b).Close()
	}), queue))
}

// inQueue runs fn in a transaction.
func (s *Store) inQueue(ctx context.Context, name string, fn func(tx pgx.Tx, q *queueRow) error) error {
	q, err := s.findQueue(ctx, name)
	if err != nil {
		return err
	}
	return s.tx(ctx, func(tx pgx.Tx) error { return orNoQueue(fn(tx, q), name) })
}

// orNoQueue: the row or the table of a queue is not there.
func orNoQueue(err error, name string) error {
	if isNoRows(err) || pgerror.State(err) == "42P01" {
		return tables.NoQueue(name)
	}
	return err
}

// queue is one queue of a store.
type queue struct {
	store *Store
	name  string
}

var (
	_ penstock.Queue       = queue{}
	_ penstock.Releaser    = queue{}
	_ penstock.AckClaimer  = queue{}
	_ penstock.GroupFinder = queue{}
)

// Queue implements penstock.QueueStore.
func (s *Store) Queue(name string) penstock.Queue { return queue{s, name} }
