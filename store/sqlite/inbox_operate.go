package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

var _ driver.InboxStore = (*Store)(nil)

// Inboxes implements driver.InboxStore. Inboxes share their tables, so Bytes is 0.
func (s *Store) Inboxes(ctx context.Context) (all []admin.InboxStatus, err error) {
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		all, err = collect(ctx, tx, func(scan func(...any) error) (i admin.InboxStatus, err error) {
			var keep, due int64
			err = scan(&i.Consumer, &keep, &i.Held, &i.HeldBytes, &due, &i.Gaps)
			i.Keep = time.Duration(keep) * time.Microsecond
			if due != 0 {
				i.NextGap = fromMicros(due)
			}
			return i, err
		}, inboxStatusSQL, time.Now().UnixMicro())
		return err
	})
	return all, err
}

// HeldMessages implements driver.InboxStore.
func (s *Store) HeldMessages(ctx context.Context, q admin.HeldQuery) (all []admin.HeldMessage, err error) {
	q.SetDefaults()
	if err := admin.ValidateInboxRows(q.Limit); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		box, err := s.Inbox(q.Consumer).find(ctx, tx)
		if err != nil {
			return err
		}
		all, err = collect(ctx, tx, func(scan func(...any) error) (m admin.HeldMessage, err error) {
			var head sql.NullString
			var at, due int64
			err = scan(&m.ID, &m.Key, &head, &m.PayloadBytes, &m.Payload, &m.Previous, &m.PreviousHeld, &at, &due)
			m.Headers, m.At, m.Due = headers(head.String), fromMicros(at), fromMicros(due)
			return m, err
		}, inboxHeldSQL, box.id, orNull(q.Key), orNull(q.Previous), orNull(q.ID), q.Limit)
		return err
	})
	return all, err
}

// ReleaseHeld implements driver.InboxStore.
func (s *Store) ReleaseHeld(ctx context.Context, q admin.HeldQuery) (n int64, err error) {
	err = s.onInbox(ctx, q.Consumer, func(ctx context.Context, tx *sql.Tx, box inboxRow) error {
		n, err = box.letGo(ctx, tx, q)
		return err
	})
	return n, err
}

// letGo makes messages due.
func (b inboxRow) letGo(ctx context.Context, tx *sql.Tx, q admin.HeldQuery) (int64, error) {
	done, err := tx.ExecContext(ctx, inboxReleaseSQL, b.id, orNull(q.Key), orNull(q.Previous), orNull(q.ID), time.Now().UnixMicro())
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

// DiscardHeld implements driver.InboxStore.
func (s *Store) DiscardHeld(ctx context.Context, consumer string, ids ...string) (gone []string, err error) {
	err = s.onInbox(ctx, consumer, func(ctx context.Context, tx *sql.Tx, box inboxRow) error {
		for _, id := range ids {
			keys, err := collect(ctx, tx, func(scan func(...any) error) (key string, err error) { return key, scan(&key) },
				`delete from penstock_held where inbox_id = ? and id = ? returning key`, box.id, id)
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				continue
			}
			if _, err := tx.ExecContext(ctx, `delete from penstock_received where inbox_id = ? and id = ?`, box.id, id); err != nil {
				return err
			}
			if err := box.report(ctx, tx, id, keys[0], "", true); err != nil {
				return err
			}
			if _, err := box.letGo(ctx, tx, admin.HeldQuery{Previous: id}); err != nil {
				return err
			}
			gone = append(gone, id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// InboxGaps implements driver.InboxStore.
func (s *Store) InboxGaps(ctx context.Context, consumer string, limit int) (all []admin.InboxGap, err error) {
	if err := admin.ValidateInboxRows(limit); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		box, err := s.Inbox(consumer).find(ctx, tx)
		if err != nil {
			return err
		}
		all, err = collect(ctx, tx, func(scan func(...any) error) (g admin.InboxGap, err error) {
			var at int64
			err = scan(&g.Missing, &g.Key, &g.Next, &at, &g.Discarded, &g.Came)
			g.At = fromMicros(at)
			return g, err
		}, inboxGapsSQL, box.id, time.Now().Add(-box.keep).UnixMicro(), limit)
		return err
	})
	return all, err
}

// onInbox is write for one inbox.
func (s *Store) onInbox(ctx context.Context, consumer string, do func(ctx context.Context, tx *sql.Tx, box inboxRow) error) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		box, err := s.Inbox(consumer).find(ctx, tx)
		if err != nil {
			return err
		}
		return do(ctx, tx, box)
	})
}

// collect reads the rows of a query.
func collect[T any](ctx context.Context, tx Tx, scan func(func(...any) error) (T, error), query string, args ...any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		one, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
