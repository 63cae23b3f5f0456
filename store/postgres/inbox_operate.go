package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
)

var _ driver.InboxStore = (*Store)(nil)

// Inboxes implements driver.InboxStore. A role that is only an operator gets the inboxes
// that were granted to it.
func (s *Store) Inboxes(ctx context.Context) ([]admin.InboxStatus, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, func(row pgx.CollectableRow) (i admin.InboxStatus, err error) {
		var (
			keepMicros int64
			segments   []int64
			current    int
		)
		err = row.Scan(&i.Consumer, &keepMicros, &i.Bytes, &i.Held, &i.HeldBytes, (*zeronull.Timestamptz)(&i.NextGap), &i.Gaps, &segments, &current)
		i.Keep = time.Duration(keepMicros) * time.Microsecond
		for slot, bytes := range segments {
			i.Segments = append(i.Segments, admin.SegmentStatus{Slot: slot, Bytes: bytes, Current: slot == current})
		}
		return i, err
	}, "select consumer, (extract(epoch from keep) * 1000000)::bigint, bytes, held, held_bytes, next_gap, gaps, segment_bytes, current_segment from "+
		s.table("inboxes")+"()")
	if pgerror.IsForbidden(err) && s.lacksInboxes(ctx) {
		return nil, nil // no inbox, so none that could be granted
	}
	return all, s.explain(err)
}

// lacksInboxes reports whether a role that may use the schema has no inbox to see.
func (s *Store) lacksInboxes(ctx context.Context) (none bool) {
	err := s.pool.QueryRow(ctx, `select has_schema_privilege(n.oid, 'usage') and not exists (select from pg_class c where c.relnamespace = n.oid and c.relname like '\_\_inbox.%')
		  from pg_namespace n where n.nspname = $1`, s.schema).Scan(&none)
	return err == nil && none
}

// HeldMessages implements driver.InboxStore.
func (s *Store) HeldMessages(ctx context.Context, q admin.HeldQuery) ([]admin.HeldMessage, error) {
	q.SetDefaults()
	if err := admin.ValidateLimit(q.Limit); err != nil {
		return nil, err
	}
	return inboxRows(ctx, s, q.Consumer,
		"select message_id, key, previous_id, previous_held, held_at, due, headers::text, payload_bytes, payload from "+s.table("inbox_held")+"($1, $2, $3, $4, $5)",
		func(row pgx.CollectableRow) (m admin.HeldMessage, err error) {
			var headers zeronull.Text
			if err := row.Scan(&m.ID, &m.Key, &m.Previous, &m.PreviousHeld, &m.At, &m.Due, &headers, &m.PayloadBytes, &m.Payload); err != nil || headers == "" {
				return m, err
			}
			m.Headers, err = decodeHeaders([]byte(headers))
			return m, err
		}, q.Consumer, orNull(q.Key), orNull(q.Previous), orNull(q.ID), q.Limit)
}

// ReleaseHeld implements driver.InboxStore.
func (s *Store) ReleaseHeld(ctx context.Context, q admin.HeldQuery) (n int64, err error) {
	all, err := inboxRows(ctx, s, q.Consumer, "select "+s.table("inbox_release")+"($1, $2, $3, $4)", pgx.RowTo[int64],
		q.Consumer, orNull(q.Key), orNull(q.Previous), orNull(q.ID))
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// DiscardHeld implements driver.InboxStore. It waits for consumers that process messages
// of the same keys.
func (s *Store) DiscardHeld(ctx context.Context, consumer string, ids ...string) ([]string, error) {
	return inboxRows(ctx, s, consumer, "select * from "+s.table("inbox_discard")+"($1, $2::text[])", pgx.RowTo[string], consumer, ids)
}

// InboxGaps implements driver.InboxStore.
func (s *Store) InboxGaps(ctx context.Context, consumer string, limit int) ([]admin.InboxGap, error) {
	if err := admin.ValidateLimit(limit); err != nil {
		return nil, err
	}
	return inboxRows(ctx, s, consumer, "select missing, key, coalesce(followed_by, ''), reported_at, discarded, came from "+s.table("inbox_gaps")+"($1, $2)",
		func(row pgx.CollectableRow) (g admin.InboxGap, err error) {
			return g, row.Scan(&g.Missing, &g.Key, &g.Next, &g.At, &g.Discarded, &g.Came)
		}, consumer, limit)
}

// inboxRows reads the rows of a function about one inbox.
func inboxRows[T any](ctx context.Context, s *Store, consumer, query string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	if err := penstock.ValidateConsumer(consumer); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, scan, query, args...)
	return all, s.Inbox(consumer).explain(err)
}

// GrantConsumer lets a role receive with one inbox and do nothing else. Errors:
// ErrNoInbox, and a *penstock.FieldError for a role that does not exist.
func (s *Store) GrantConsumer(ctx context.Context, consumer, role string) error {
	return s.grantInbox(ctx, "grant_consumer", consumer, role)
}

// GrantInboxOperator lets a role operate one inbox: Inboxes, HeldMessages, InboxGaps,
// ReleaseHeld and DiscardHeld. Inboxes then describes only granted inboxes.
func (s *Store) GrantInboxOperator(ctx context.Context, consumer, role string) error {
	return s.grantInbox(ctx, "grant_inbox_operator", consumer, role)
}

func (s *Store) grantInbox(ctx context.Context, function, consumer, role string) error {
	if !canBeRole(role) {
		return noRole(role)
	}
	err := s.inboxCall(ctx, consumer, function, "($1, $2)", consumer, role)
	if sqlState(err) == "42704" {
		return noRole(role)
	}
	return err
}
