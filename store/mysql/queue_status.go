package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
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
	q := &queueRow{name: name}
	var there, lifo, paused bool
	var attempts, running int
	var window time.Duration
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		there = true
		return rows.Scan(&q.id, &lifo, &paused, &attempts, &running, &window)
	}, s.sql("select id, lifo, paused, max_attempts, max_running, dedup_window from {schema}.queues where name = ?", "", nil), []byte(name))
	// MyRocks counts nothing that it has in memory only: that are the payloads at least.
	b.read(func(rows *sql.Rows) error { return rows.Scan(&st.Bytes) },
		"select greatest(coalesce(sum(data_length + index_length), 0), (select coalesce(sum(octet_length(payload)), 0) from "+queueTable(s.opts.Schema, name)+
			")) from information_schema.tables where table_schema = ? and table_name = ?", s.opts.Schema, tableName("queue", name))
	if err := s.ask(ctx, b); err != nil {
		return st, orNoQueue(err, name)
	}
	if !there {
		return st, tables.NoQueue(name)
	}
	if lifo {
		st.Order = penstock.LIFO
	}
	q.Seen = tables.NewSeen(lifo)
	st.QueueSettings = penstock.QueueSettings{Paused: &paused, MaxAttempts: &attempts, MaxRunning: &running, DedupWindow: &window}
	groups, err := s.groups(ctx, q, "", 0)
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
	all, err := s.groups(ctx, q, after, most)
	return all, s.explain(err)
}

func (s *Store) groups(ctx context.Context, q *queueRow, after string, most int) (all []penstock.GroupStatus, err error) {
	limit := ""
	if most > 0 {
		limit = fmt.Sprintf("limit %d", most)
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var g penstock.GroupStatus
		var oldest sql.NullTime
		var now time.Time
		err := rows.Scan(&g.Group, &g.Ready, &g.Running, &g.Delayed, &g.Waiting, &g.DeadLetters, &oldest, &now)
		if oldest.Valid {
			g.OldestAge = max(now.Sub(oldest.Time), 1)
		}
		all = append(all, g)
		return err
	}, s.queueSQL("queue_groups", q, words{"all": after == "", "limit": limit}), []byte(after))
	return all, orNoQueue(s.ask(ctx, b), q.name)
}

// ReadyGroups implements penstock.GroupFinder. Jobs whose leases have ended are back first.
func (q queue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) (found []string, err error) {
	row, err := q.store.findQueue(ctx, q.name)
	if err != nil {
		return nil, err
	}
	chosen, args := "true", []any(nil)
	if len(groups) > 0 {
		chosen, args = texts(groups)
		chosen = "g.group_key in (" + chosen + ")"
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var group string
		err := rows.Scan(&group)
		found = append(found, group)
		return err
	}, q.store.queueSQL("ready_groups", row, words{"chosen": chosen, "most": most}), append(args, []byte(behind))...)
	return found, q.store.explain(orNoQueue(q.store.ask(ctx, b), q.name))
}
