package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

var _ penstock.QueueStore = (*Store)(nil)

// queueRow is what does not change of a row of the queues, and what claims have seen.
type queueRow struct {
	id   int64
	name string
	*tables.Seen
}

// queueTable is the table with a queue's jobs, quoted.
func queueTable(schema, name string) string {
	return quoted(schema) + "." + quoted(tableName("queue", name))
}

// direction has the words for the order of a queue: the index is read forwards or backwards, so in LIFO the place of a priority is its negative.
func direction(lifo bool) words {
	if lifo {
		return words{"sign": "-", "dir": "desc"}
	}
	return words{"sign": "", "dir": "asc"}
}

// CreateQueue implements penstock.QueueStore.
func (s *Store) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := cmp.Or(penstock.ValidateQueueName(name), order.Validate(), validTable("queue", name)); err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		if err := s.nameFree(ctx, t, "queue", name); err != nil {
			return err
		}
		b := &batch{}
		b.add(s.sql("insert into {schema}.queues (name, lifo) values (?, {lifo})", "", words{"lifo": order == penstock.LIFO}), []byte(name))
		if err := t.run(ctx, b); err != nil {
			return err
		}
		// A table that is there is left from somebody who died on the way.
		w := direction(order == penstock.LIFO)
		w["jobs"] = queueTable(s.opts.Schema, name)
		if err := s.define(ctx, s.sql("drop table if exists {jobs}", "", w)); err != nil {
			return err
		}
		return s.define(ctx, s.sql("create_queue", "", w))
	})
}

// DropQueue implements penstock.QueueStore.
func (s *Store) DropQueue(ctx context.Context, name string) error {
	err := s.tx(ctx, func(t *tx) error {
		var id int64
		b := &batch{}
		b.read(func(rows *sql.Rows) error { return rows.Scan(&id) }, s.sql("select id from {schema}.queues where name = ? for update", "", nil), []byte(name))
		if err := t.run(ctx, b); err != nil {
			return err
		}
		if id == 0 {
			return tables.NoQueue(name)
		}
		b = &batch{}
		for _, table := range []string{"leases", "tries", "dead_jobs", "dedup", "schedules"} {
			b.add(s.sql("delete from {schema}."+table+" where queue_id = {queue}", "", words{"queue": id}))
		}
		b.add(s.sql("delete from {schema}.queues where id = {queue}", "", words{"queue": id}))
		if err := t.run(ctx, b); err != nil {
			return err
		}
		return s.define(ctx, "drop table if exists "+queueTable(s.opts.Schema, name))
	})
	s.queues.Delete(name)
	return err
}

// SetQueue implements penstock.QueueStore.
func (s *Store) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	if err := set.ValidateWithoutHistory(); err != nil {
		return err
	}
	there := false
	err := s.tx(ctx, func(t *tx) error {
		b := &batch{}
		b.read(func(*sql.Rows) error { there = true; return nil }, s.sql("select id from {schema}.queues where name = ? for update", "", nil), []byte(name))
		b.add(s.sql(`update {schema}.queues set paused = coalesce(?, paused), max_attempts = coalesce(?, max_attempts),
			max_running = coalesce(?, max_running), dedup_window = coalesce(?, dedup_window) where name = ?`, "", nil),
			valueOf(set.Paused), valueOf(set.MaxAttempts), valueOf(set.MaxRunning), valueOf((*int64)(set.DedupWindow)), []byte(name))
		return t.finish(ctx, b)
	})
	if err == nil && !there {
		return tables.NoQueue(name)
	}
	return err
}

func valueOf[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// findQueue knows a queue from before, or looks. One that was made anew since has another id: what
// is asked then finds nothing.
func (s *Store) findQueue(ctx context.Context, name string) (*queueRow, error) {
	if err := s.use(ctx); err != nil {
		return nil, err
	}
	if q, ok := s.queues.Load(name); ok {
		return q.(*queueRow), nil
	}
	q := &queueRow{name: name}
	var lifo bool
	err := s.db.QueryRowContext(ctx, s.sql("select id, lifo from {schema}.queues where name = ?", "", nil), []byte(name)).Scan(&q.id, &lifo)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, tables.NoQueue(name)
	}
	if err != nil {
		return nil, s.explain(err)
	}
	q.Seen = tables.NewSeen(lifo)
	found, _ := s.queues.LoadOrStore(name, q)
	return found.(*queueRow), nil
}

// queueSQL is a statement about a queue.
func (s *Store) queueSQL(statement string, q *queueRow, more words) string {
	w := direction(q.LIFO())
	w["queue"], w["jobs"] = q.id, queueTable(s.opts.Schema, q.name)
	for name, value := range more {
		w[name] = value
	}
	return s.sql(statement, "", w)
}

// inQueue runs fn in a transaction.
func (s *Store) inQueue(ctx context.Context, name string, fn func(t *tx, q *queueRow) error) error {
	q, err := s.findQueue(ctx, name)
	if err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error { return orNoQueue(fn(t, q), name) })
}

// orNoQueue: the table of a queue is not there.
func orNoQueue(err error, name string) error {
	if number(err) == noSuchTable || errors.Is(err, sql.ErrNoRows) {
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
