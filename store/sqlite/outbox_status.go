package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/seqset"
)

// Status implements driver.Store.
//
// Bytes is the size of the outbox's table in the file, all its pages, without parked
// messages and dead letters. To find it, it reads the outbox, about 0.5 s for a
// gigabyte, so for a large outbox it returns the last answer for a while. A backlog
// of more than some thousands is the distance between two seqs. It then includes
// messages that the application deleted itself.
func (s *Store) Status(ctx context.Context) ([]admin.OutboxStatus, error) {
	return s.StatusUpTo(ctx, 0)
}

// StatusUpTo implements driver.StatusCounter. It counts no figure beyond most; 0 means no limit.
func (s *Store) StatusUpTo(ctx context.Context, most int) ([]admin.OutboxStatus, error) {
	all := []admin.OutboxStatus{}
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		boxes, err := listOutboxes(ctx, tx)
		if err != nil {
			return err
		}
		for _, box := range boxes {
			st := admin.OutboxStatus{Outbox: box.name, Retention: box.retention, Subscriptions: []admin.SubscriptionStatus{}}
			if st.Bytes, err = s.size(ctx, tx, box.pages()); err != nil {
				return err
			}
			if st.Subscriptions, err = box.subscriptions(ctx, tx, most); err != nil {
				return err
			}
			all = append(all, st)
		}
		return nil
	})
	return all, err
}

func listOutboxes(ctx context.Context, tx *sql.Tx) ([]outbox, error) {
	rows, err := tx.QueryContext(ctx, `select id, name, uid, retention_age, retention_bytes from penstock_outboxes order by name`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var boxes []outbox
	for rows.Next() {
		var box outbox
		if err := rows.Scan(&box.id, &box.name, &box.ids.UID, &box.retention.Age, &box.retention.Bytes); err != nil {
			return nil, err
		}
		boxes = append(boxes, box)
	}
	return boxes, rows.Err()
}

// measurement is how large an outbox was and how long the answer may be given.
type measurement struct {
	bytes int64
	until time.Time
}

// pages are those of tables and indexes that are measured together, and what their
// measurement is remembered by.
type pages struct {
	as    string
	parts []string
}

func (o outbox) pages() pages { return pages{o.ids.UID, []string{unquoted(Table(o.name))}} }

// size asks dbstat, which walks the pages. The answer holds for twenty times as long as it took.
// That is short for a small table, and takes at most a twentieth of a caller's time for a large
// one.
func (s *Store) size(ctx context.Context, tx querier, what pages) (int64, error) {
	s.mu.Lock()
	m := s.sizes[what.as]
	s.mu.Unlock()
	began := time.Now()
	if began.Before(m.until) {
		return m.bytes, nil
	}
	m.bytes = 0
	for _, part := range what.parts {
		var bytes int64
		if err := tx.QueryRowContext(ctx, `select coalesce(sum(pgsize), 0) from dbstat where name = ? and aggregate = 1`, part).Scan(&bytes); err != nil {
			return 0, fmt.Errorf("size of %q: %w", part, err)
		}
		m.bytes += bytes
	}
	if took := time.Since(began); took > 20*time.Millisecond {
		m.until = began.Add(20 * took)
	}
	s.mu.Lock()
	s.sizes[what.as] = m
	s.mu.Unlock()
	return m.bytes, nil
}

// forgetSize is for something that is dropped.
func (s *Store) forgetSize(what pages) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sizes, what.as)
}

// subscriptions describes the readers of an outbox.
func (o outbox) subscriptions(ctx context.Context, tx *sql.Tx, most int) ([]admin.SubscriptionStatus, error) {
	first, last, err := o.extent(ctx, tx)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, statement("status"), sql.Named("outbox", o.id), sql.Named("most", orAll(most)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []admin.SubscriptionStatus{}
	now := time.Now()
	for rows.Next() {
		var st admin.SubscriptionStatus
		var id, position, rateAt, since, until, down, parked int64
		var rate float64
		var text, why string
		if err := rows.Scan(&id, &st.Subscription, &position, &text, &st.Settled, &rate, &rateAt, &st.Holder, &since, &st.Epoch, &until,
			&st.DeadLetters, &st.Parked, &st.ParkedKeys, &st.HeldKeys, &parked, &st.Replaying, &down, &why); err != nil {
			return nil, err
		}
		st.Rate = decayed(rate, rateAt, now)
		if now.UnixMicro() < until {
			st.HolderSince, st.LeaseUntil = fromMicros(since), fromMicros(until)
			if down != 0 {
				st.SinkDown, st.SinkError = fromMicros(down), why
			}
		} else {
			st.Holder = ""
		}
		if parked != 0 {
			st.ParkedAge = max(now.Sub(time.UnixMilli(parked)), 1)
		}
		ahead, err := readRanges(text, nil)
		if err != nil {
			return nil, err
		}
		var oldest int64
		if st.Backlog, oldest, err = o.backlog(ctx, tx, max(position, first-1), last, ahead); err != nil {
			return nil, err
		}
		if oldest != 0 {
			st.OldestAge = max(now.Sub(time.UnixMilli(oldest)), 0)
		}
		exact := st.Backlog // which costs nothing beyond some thousands
		st.Cap(int64(most))
		st.Backlog, st.AtLeast = exact, slices.DeleteFunc(st.AtLeast, func(name string) bool { return name == "backlog" })
		all = append(all, st)
	}
	return all, rows.Err()
}

// countUpTo is the longest distance in which messages are counted one by one.
const countUpTo = 10_000

// backlog counts what is behind a position and not settled ahead of it, and tells when
// the first of that was created, 0 without any.
func (o outbox) backlog(ctx context.Context, tx *sql.Tx, position, last int64, ahead seqset.Set) (n, oldest int64, err error) {
	if n = last - position; n <= 0 {
		return 0, 0, nil
	}
	table, settled := Table(o.name), array(ahead.Seqs())
	if n > countUpTo {
		n -= ahead.Len()
	} else if err := tx.QueryRowContext(ctx, on(table, `select count(*) from {table} where seq > ?1 and seq not in (select value from json_each(?2))`), position, settled).Scan(&n); err != nil {
		return 0, 0, err
	}
	err = tx.QueryRowContext(ctx, on(table, `select coalesce((select created_at from {table} where seq > ?1 and seq not in (select value from json_each(?2)) order by seq limit 1), 0)`), position, settled).Scan(&oldest)
	return n, oldest, err
}

// orAll is a limit of SQL: 0 means none.
func orAll(most int) int {
	if most == 0 {
		return -1
	}
	return most
}
