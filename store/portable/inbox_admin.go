package portable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

var (
	_ penstock.InboxStore    = (*Store)(nil)
	_ penstock.OncePublisher = (*Store)(nil)
)

// CreateInbox implements penstock.InboxStore.
func (s *Store) CreateInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateConsumer(consumer); err != nil {
		return err
	}
	if keep == 0 {
		keep = penstock.DefaultInboxKeep
	}
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	err := s.tx(ctx, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, s.sql("insert into {schema}.inboxes (consumer, keep) values ($1, $2) returning id", ""), consumer, keep.Microseconds()).Scan(&id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql("insert into {schema}.turns (inbox_id, turn) select $1, n from generate_series(0, $2::integer - 1) t(n)", ""), id, turns)
		return err
	})
	if pgerror.State(err) == "23505" {
		return fmt.Errorf("%w: of %q", penstock.ErrInboxExists, consumer)
	}
	return err
}

// SetInbox implements penstock.InboxStore.
func (s *Store) SetInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	return s.onInbox(ctx, consumer, func(tx pgx.Tx, id int64, _ time.Duration) error {
		_, err := tx.Exec(ctx, s.sql("update {schema}.inboxes set keep = $2 where id = $1", ""), id, keep.Microseconds())
		return err
	})
}

// DropInbox implements penstock.InboxStore.
func (s *Store) DropInbox(ctx context.Context, consumer string) error {
	return s.onInbox(ctx, consumer, func(tx pgx.Tx, id int64, _ time.Duration) error {
		b := &pgx.Batch{}
		for _, table := range []string{"turns", "received", "gaps", "held", "key_heads"} {
			b.Queue(s.sql("delete from {schema}."+table+" where inbox_id = $1", ""), id)
		}
		b.Queue(s.sql("delete from {schema}.inboxes where id = $1", ""), id)
		return tx.SendBatch(ctx, b).Close()
	})
}

// Inboxes implements penstock.InboxStore. Inboxes share their tables, so Bytes is 0.
func (s *Store) Inboxes(ctx context.Context) ([]penstock.InboxStatus, error) {
	return collectOf(ctx, s, func(r pgx.CollectableRow) (i penstock.InboxStatus, err error) {
		var keep int64
		var due *time.Time
		err = r.Scan(&i.Consumer, &keep, &i.Held, &i.HeldBytes, &due, &i.Gaps)
		i.Keep, i.NextGap = time.Duration(keep)*time.Microsecond, timeOf(due)
		return i, err
	}, "inbox_status")
}

// HeldMessages implements penstock.InboxStore.
func (s *Store) HeldMessages(ctx context.Context, q penstock.HeldQuery) ([]penstock.HeldMessage, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	id, _, err := s.findInbox(ctx, q.Consumer)
	if err != nil {
		return nil, err
	}
	return collectOf(ctx, s, func(r pgx.CollectableRow) (m penstock.HeldMessage, err error) {
		var headers []byte
		if err := r.Scan(&m.ID, &m.Key, &headers, &m.PayloadBytes, &m.Payload, &m.Previous, &m.PreviousHeld, &m.At, &m.Due); err != nil {
			return m, err
		}
		if len(headers) > 0 {
			err = json.Unmarshal(headers, &m.Headers)
		}
		m.At, m.Due = m.At.UTC(), m.Due.UTC()
		return m, err
	}, "inbox_held", id, q.Key, q.Previous, q.ID, q.Limit)
}

// ReleaseHeld implements penstock.InboxStore.
func (s *Store) ReleaseHeld(ctx context.Context, q penstock.HeldQuery) (n int64, err error) {
	err = s.onInbox(ctx, q.Consumer, func(tx pgx.Tx, id int64, _ time.Duration) error {
		done, err := tx.Exec(ctx, s.sql("inbox_release", ""), id, q.Key, q.Previous, q.ID)
		n = done.RowsAffected()
		return err
	})
	return n, err
}

// DiscardHeld implements penstock.InboxStore. All turns are taken: whoever receives a message waits.
func (s *Store) DiscardHeld(ctx context.Context, consumer string, ids ...string) (gone []string, err error) {
	err = s.onInbox(ctx, consumer, func(tx pgx.Tx, inbox int64, _ time.Duration) error {
		gone = nil
		if _, err := tx.Exec(ctx, s.sql("select from {schema}.turns where inbox_id = $1 order by turn for update", ""), inbox); err != nil {
			return err
		}
		for _, id := range ids {
			var key string
			err := tx.QueryRow(ctx, s.sql("delete from {schema}.held where inbox_id = $1 and id = $2 returning key", ""), inbox, id).Scan(&key)
			if isNoRows(err) {
				continue
			}
			if err != nil {
				return err
			}
			b := &pgx.Batch{}
			b.Queue(s.sql("delete from {schema}.received where inbox_id = $1 and id = $2", ""), inbox, id)
			s.queueGap(b, inbox, id, key, "", true)
			b.Queue(s.sql("inbox_release", ""), inbox, "", id, "")
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
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

// InboxGaps implements penstock.InboxStore.
func (s *Store) InboxGaps(ctx context.Context, consumer string, limit int) ([]penstock.InboxGap, error) {
	if err := penstock.ValidateInboxRows(limit); err != nil {
		return nil, err
	}
	id, keep, err := s.findInbox(ctx, consumer)
	if err != nil {
		return nil, err
	}
	return collectOf(ctx, s, func(r pgx.CollectableRow) (g penstock.InboxGap, err error) {
		err = r.Scan(&g.Missing, &g.Key, &g.Next, &g.At, &g.Discarded, &g.Came)
		g.At = g.At.UTC()
		return g, err
	}, "inbox_gaps", id, keep.Microseconds(), limit)
}

func (s *Store) findInbox(ctx context.Context, consumer string) (id int64, keep time.Duration, err error) {
	err = s.onInbox(ctx, consumer, func(_ pgx.Tx, of int64, kept time.Duration) error {
		id, keep = of, kept
		return nil
	})
	return id, keep, err
}

// onInbox runs fn in a transaction that has locked the inbox's row.
func (s *Store) onInbox(ctx context.Context, consumer string, fn func(tx pgx.Tx, id int64, keep time.Duration) error) error {
	return s.tx(ctx, func(tx pgx.Tx) error {
		var id, keep int64
		err := tx.QueryRow(ctx, s.sql("select id, keep from {schema}.inboxes where consumer = $1 for update", ""), consumer).Scan(&id, &keep)
		if isNoRows(err) {
			return noInbox(consumer)
		}
		if err != nil {
			return err
		}
		return fn(tx, id, time.Duration(keep)*time.Microsecond)
	})
}

// collectOf reads the rows of a statement of sql/.
func collectOf[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], statement string, args ...any) ([]T, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, s.sql(statement, ""), args...)
	if err != nil {
		return nil, s.explain(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	return all, s.explain(err)
}
