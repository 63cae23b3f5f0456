package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// EnqueueTx writes jobs inside the application's transaction, with any SQLite driver,
// and returns a result for each, in the given order. They run once it has committed,
// and never if it rolls back. All jobs are checked before the first one is written; a
// *penstock.FieldError says which cannot be carried. After any other error roll back,
// because some of the jobs may have been written. Begin with BEGIN IMMEDIATE, as for
// PublishTx.
func (q *Queue) EnqueueTx(ctx context.Context, tx Tx, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if _, err := tables.HasDedup(jobs, true); err != nil {
		return nil, err
	}
	if b, ok := tx.(*BufferedTx); ok {
		pending, err := b.Enqueue(ctx, q, jobs...)
		if err != nil {
			return nil, err
		}
		return pending.Enqueued(ctx)
	}
	jobs, holds, waits := barriersOf(jobs)
	if holds != nil {
		if err := q.holding(ctx, tx, holds); err != nil {
			return nil, explainEnqueue(ctx, tx, q.name, err)
		}
	}
	made, err := q.enqueue(ctx, tx, jobs)
	if err == nil && waits != nil {
		err = q.wait(ctx, tx, waits, made)
	}
	if err != nil {
		return nil, explainEnqueue(ctx, tx, q.name, err)
	}
	return made, nil
}

func (q *Queue) enqueue(ctx context.Context, tx Tx, jobs []penstock.NewJob) ([]penstock.Enqueued, error) {
	made := make([]penstock.Enqueued, len(jobs))
	fresh, first, row, err := q.sift(ctx, tx, jobs, made)
	if err != nil {
		return nil, err
	}
	united := func() {}
	if tables.HasUnique(jobs) {
		if jobs, united, err = q.unite(ctx, tx, jobs, made); err != nil {
			return nil, err
		}
		fresh = slices.DeleteFunc(fresh, func(i int) bool { return made[i].Deduplicated })
	}
	if err := q.insert(ctx, tx, jobs, fresh, made); err != nil {
		return nil, err
	}
	if united(); first == nil {
		return made, nil
	}
	var notes [][2]any
	for i := range jobs {
		key := jobs[i].DedupKey
		if key == "" {
			continue
		}
		if f, ok := first[key]; ok {
			if made[i].ID = made[f].ID; f == i {
				notes = append(notes, [2]any{key, made[i].ID})
			}
		}
	}
	if len(notes) > 0 {
		_, err = tx.ExecContext(ctx, statement("note_dedup"), row.id, time.Now().UnixMicro(), array(notes))
	}
	return made, err
}

// unite finds the jobs that are there already by their unique keys. One that is new comes with an index by which it is found.
func (q *Queue) unite(ctx context.Context, tx Tx, jobs []penstock.NewJob, made []penstock.Enqueued) ([]penstock.NewJob, func(), error) {
	on := onOurs(tx)
	row, err := q.store.queues.Queue(q.name).RowIn(ctx, on)
	if err != nil {
		return nil, nil, err
	}
	if _, err := tx.ExecContext(ctx, definition("create_unique", q.name, row.ID)); err != nil {
		return nil, nil, err
	}
	return tables.Twins{Tx: on, Args: row.Args(nil)}.Unite(ctx, jobs, made)
}

// sift finds the jobs that must be written, as indexes of jobs, and fills in the results of the
// others. first is the index of the first job of each dedup key that must be written, nil if no job
// has one.
func (q *Queue) sift(ctx context.Context, tx Tx, jobs []penstock.NewJob, made []penstock.Enqueued) (fresh []int, first map[string]int, row queueRow, err error) {
	known := map[string]int64{}
	var keys []string
	for i := range jobs {
		if k := jobs[i].DedupKey; k != "" {
			keys = append(keys, k)
		}
	}
	if keys != nil {
		first = map[string]int{}
		if row, err = findQueue(ctx, tx, q.name); err != nil {
			return nil, nil, row, err
		}
		if known, err = knownJobs(ctx, tx, row, keys); err != nil {
			return nil, nil, row, err
		}
	}
	for i := range jobs {
		if k := jobs[i].DedupKey; k != "" && row.dedupWindow > 0 {
			id, old := known[k]
			_, again := first[k]
			switch {
			case old:
				made[i] = penstock.Enqueued{ID: id, Deduplicated: true}
				continue
			case again:
				made[i].Deduplicated = true
				continue
			}
			first[k] = i
		}
		fresh = append(fresh, i)
	}
	return fresh, first, row, nil
}

// knownJobs are the ids of jobs whose dedup keys still count.
func knownJobs(ctx context.Context, tx Tx, row queueRow, keys []string) (map[string]int64, error) {
	var found string
	err := tx.QueryRowContext(ctx, statement("known_dedup"), row.id, array(keys), time.Now().Add(-row.dedupWindow).UnixMicro()).Scan(&found)
	if err != nil {
		return nil, err
	}
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal([]byte(found), &pairs); err != nil {
		return nil, err
	}
	known := make(map[string]int64, len(pairs))
	for _, p := range pairs {
		var key string
		var id int64
		if err := errors.Join(json.Unmarshal(p[0], &key), json.Unmarshal(p[1], &id)); err != nil {
			return nil, err
		}
		known[key] = id
	}
	return known, nil
}

// insert writes the fresh jobs and fills in their ids. One statement draws its numbers without
// gaps, because no other connection writes.
func (q *Queue) insert(ctx context.Context, tx Tx, jobs []penstock.NewJob, fresh []int, made []penstock.Enqueued) error {
	insert := `insert into ` + QueueTable(q.name) + ` (not_before, priority, group_key, key, headers, payload) values (?, ?, ?, ?, ?, ?)`
	var args []any
	for len(fresh) > 0 {
		args = args[:0]
		n, size := 0, 0
		for _, i := range fresh {
			j := &jobs[i]
			if size += len(j.Payload); n == chunkRows || n > 0 && size > chunkBytes {
				break
			}
			args = append(args, notBefore(j.NotBefore), j.Priority, j.Group, orNull(j.Key), tables.HeadersText(j.AllHeaders()), tables.NotNil(j.Payload))
			n++
		}
		done, err := tx.ExecContext(ctx, insert+strings.Repeat(`, (?, ?, ?, ?, ?, ?)`, n-1), args...)
		if err != nil {
			return err
		}
		last, err := done.LastInsertId()
		if err != nil {
			return err
		}
		for k, i := range fresh[:n] {
			made[i].ID = last - int64(n-1-k)
		}
		fresh = fresh[n:]
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

// explainEnqueue says why writing jobs failed; see explainPublish.
func explainEnqueue(ctx context.Context, tx Tx, name string, err error) error {
	return explainQueue(ctx, tx, "enqueue to", name, err)
}

func explainQueue(ctx context.Context, tx Tx, what, name string, err error) error {
	if !noSuchTable(err) {
		if errors.Is(err, penstock.ErrNoQueue) {
			return err
		}
		return fmt.Errorf("%s %q: %w", what, name, err)
	}
	switch _, lookup := findQueue(ctx, tx, name); {
	case errors.Is(lookup, penstock.ErrNoQueue):
		return lookup
	case noSuchTable(lookup):
		return penstock.WithHint(fmt.Errorf("%s %q: %w", what, name, penstock.ErrNotMigrated), "call Migrate, or run penstock migrate, on this database file")
	}
	return fmt.Errorf("%s %q: %w", what, name, err)
}

// queueRow has the columns of a queue that enqueueing needs.
type queueRow struct {
	id          int64
	dedupWindow time.Duration
}

func findQueue(ctx context.Context, q querier, name string) (row queueRow, err error) {
	err = q.QueryRowContext(ctx, `select id, dedup_window from penstock_queues where name = ?`, name).Scan(&row.id, &row.dedupWindow)
	if errors.Is(err, sql.ErrNoRows) {
		err = tables.NoQueue(name)
	}
	return row, err
}
