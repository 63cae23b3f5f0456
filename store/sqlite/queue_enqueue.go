package sqlite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// EnqueueTx writes jobs inside the application's transaction, with any SQLite driver,
// and returns a result for each, in the given order. They run once it has committed,
// and never if it rolls back. All jobs are checked before the first one is written; a
// *penstock.FieldError shows which cannot be carried. After any other error roll back,
// because some of the jobs may have been written. Begin with BEGIN IMMEDIATE, as for
// PublishTx.
func (q *Queue) EnqueueTx(ctx context.Context, tx Tx, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if err := tables.ValidateJobs(jobs, true); err != nil {
		return nil, err
	}
	if b, ok := tx.(*BufferedTx); ok {
		pending, err := b.Enqueue(ctx, q, jobs...)
		if err != nil {
			return nil, err
		}
		return pending.Enqueued(ctx)
	}
	jobs, waits, barriers := barriersOf(jobs)
	var made []penstock.Enqueued
	write := func() (err error) {
		made, err = tables.Enqueue(ctx, &enqueuing{onTx: onOurs(tx), store: q.store, queue: q.name}, jobs)
		if err == nil && waits != nil {
			err = q.wait(ctx, tx, waits, made)
		}
		return err
	}
	var err error
	if barriers { // which of them may be wrong is known only when the duplicates are
		err = savepoint(ctx, tx, write)
	} else {
		err = write()
	}
	if err != nil {
		return nil, q.explain(ctx, tx, "enqueue to", err)
	}
	return made, nil
}

// enqueuing is a transaction in which jobs of a queue are written.
type enqueuing struct {
	onTx
	store *Store
	queue string
	row   *tables.QueueRow // for dedup keys and unique keys
}

func (e *enqueuing) look(ctx context.Context) (err error) {
	if e.row == nil {
		e.row, err = e.store.rowIn(ctx, e.Tx, e.queue)
	}
	return err
}

// Twins implements tables.Enqueuing. The first unique job comes with an index by which it is found.
func (e *enqueuing) Twins(ctx context.Context) (tables.Twins, error) {
	if err := e.look(ctx); err != nil {
		return tables.Twins{}, err
	}
	_, err := e.ExecContext(ctx, definition("create_unique", e.queue, e.row.ID))
	return tables.Twins{Tx: e.onTx, Args: e.row.Args(nil)}, err
}

// Note implements tables.Enqueuing. It only looks: no other transaction writes before this one ends.
func (e *enqueuing) Note(ctx context.Context, first map[string]int, _ []penstock.Enqueued) (known map[string]int64, err error) {
	if err := e.look(ctx); err != nil {
		return nil, err
	}
	known = map[string]int64{}
	b := new(tables.Batch).Rows(func(scan tables.Scan) error {
		var key string
		var id int64
		err := scan(&key, &id)
		known[key] = id
		return err
	}, "known_dedup", e.row.Args(tables.Args{"keys": slices.Collect(maps.Keys(first))}))
	return known, e.Run(ctx, b)
}

// Noted implements tables.Enqueuing.
func (e *enqueuing) Noted(ctx context.Context, keys []string, ids []int64) error {
	notes := make([][2]any, len(keys))
	for i := range keys {
		notes[i] = [2]any{keys[i], ids[i]}
	}
	return e.Run(ctx, new(tables.Batch).Do("note_dedup", e.row.Args(tables.Args{"notes": notes})))
}

// Insert implements tables.Enqueuing. One statement draws its numbers without gaps, because no other connection writes.
func (e *enqueuing) Insert(ctx context.Context, jobs []penstock.NewJob, places []int, made []penstock.Enqueued) error {
	if holds := held(jobs, places); holds != nil {
		if _, err := e.store.Queue(e.queue).withBarriers(ctx, e.Tx, "holds", holds, true); err != nil { // for jobs that are inserted in another way a trigger raises one
			return err
		}
	}
	insert := `insert into ` + QueueTable(e.queue) + ` (not_before, priority, group_key, key, headers, payload) values (?, ?, ?, ?, ?, ?)`
	var args []any
	for len(places) > 0 {
		args = args[:0]
		n, size := 0, 0
		for _, i := range places {
			j := &jobs[i]
			if size += len(j.Payload); n == chunkRows || n > 0 && size > chunkBytes {
				break
			}
			args = append(args, notBefore(j.NotBefore), j.Priority, j.Group, orNull(j.Key), tables.HeadersText(j.AllHeaders()), tables.NotNil(j.Payload))
			n++
		}
		done, err := e.ExecContext(ctx, insert+strings.Repeat(`, (?, ?, ?, ?, ?, ?)`, n-1), args...)
		if err != nil {
			return err
		}
		last, err := done.LastInsertId()
		if err != nil {
			return err
		}
		for k, i := range places[:n] {
			made[i].ID = last - int64(n-1-k)
		}
		places = places[n:]
	}
	return nil
}

// notBefore is the column's value: milliseconds, never too early.
func notBefore(t time.Time) any {
	if t.IsZero() || !t.After(time.Now()) {
		return nil
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

func (q *Queue) explain(ctx context.Context, tx Tx, what string, err error) error {
	return explainTx(fmt.Sprintf("%s %q", what, q.name), err, penstock.ErrNoQueue, func() error {
		_, err := q.store.rowIn(ctx, tx, q.name)
		return err
	})
}

// rowIn is the row of a queue as a transaction sees it.
func (s *Store) rowIn(ctx context.Context, tx Tx, queue string) (*tables.QueueRow, error) {
	return s.queues.Queue(queue).RowIn(ctx, onOurs(tx))
}
