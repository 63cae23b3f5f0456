package portable

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// QueueStatus implements penstock.QueueStore. It counts jobs one by one.
func (s *Store) QueueStatus(ctx context.Context) ([]penstock.QueueStatus, error) {
	names, err := s.Names(ctx, "queues")
	if err != nil {
		return nil, err
	}
	all := []penstock.QueueStatus{}
	for _, name := range names {
		st, err := s.queueStatus(ctx, name)
		switch {
		case errors.Is(err, penstock.ErrNoQueue): // dropped meanwhile
		case err != nil:
			return nil, s.explain(err)
		default:
			all = append(all, st)
		}
	}
	return all, nil
}

func (s *Store) queueStatus(ctx context.Context, name string) (penstock.QueueStatus, error) {
	st := penstock.QueueStatus{Queue: name, Order: penstock.FIFO}
	var id int64
	var lifo, paused bool
	var attempts, running int
	var window time.Duration
	err := s.pool.QueryRow(ctx, s.sql("select id, lifo, paused, max_attempts, max_running, dedup_window from {schema}.queues where name = $1", ""),
		name).Scan(&id, &lifo, &paused, &attempts, &running, &window)
	if err == nil {
		st.Bytes, err = s.bytes(ctx, s.queueSQL("{table}", name, false))
	}
	if err != nil {
		return st, orNoQueue(err, name)
	}
	if lifo {
		st.Order = penstock.LIFO
	}
	st.QueueSettings = penstock.QueueSettings{Paused: &paused, MaxAttempts: &attempts, MaxRunning: &running, DedupWindow: &window}
	groups, err := s.groups(ctx, id, name, "", nil)
	for _, g := range groups {
		st.Ready, st.Running, st.Delayed, st.Waiting = st.Ready+g.Ready, st.Running+g.Running, st.Delayed+g.Delayed, st.Waiting+g.Waiting
		st.DeadLetters, st.OldestAge = st.DeadLetters+g.DeadLetters, max(st.OldestAge, g.OldestAge)
	}
	return st, err
}

// QueueGroups implements penstock.QueueStore.
func (s *Store) QueueGroups(ctx context.Context, name, after string, most int) ([]penstock.GroupStatus, error) {
	q, err := s.findQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	all, err := s.groups(ctx, q.id, name, after, most)
	return all, s.explain(err)
}

func (s *Store) groups(ctx context.Context, id int64, name, after string, most any) ([]penstock.GroupStatus, error) {
	rows, err := s.pool.Query(ctx, s.queueSQL("queue_groups", name, false), id, after, most)
	if err != nil {
		return nil, orNoQueue(err, name)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (g penstock.GroupStatus, err error) {
		var oldest *time.Time
		err = r.Scan(&g.Group, &g.Ready, &g.Running, &g.Delayed, &g.Waiting, &g.DeadLetters, &oldest)
		if oldest != nil {
			g.OldestAge = max(time.Since(*oldest), 1)
		}
		return g, err
	})
	return all, orNoQueue(err, name)
}

// ReadyGroups implements penstock.GroupFinder. Jobs whose leases have ended are back first.
func (q queue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) (found []string, err error) {
	row, err := q.store.findQueue(ctx, q.name)
	if err != nil {
		return nil, err
	}
	var of any
	if len(groups) > 0 {
		of = groups
	}
	err = q.store.send(ctx, q.name, func(b *pgx.Batch) {
		b.Queue(q.store.text("select {by_index}"))
		b.Queue(q.store.queueSQL("ready_groups", q.name, row.LIFO()), row.id, of, behind, most).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	return found, err
}
