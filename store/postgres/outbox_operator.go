package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// SetRetention changes how long an outbox keeps settled messages.
func (s *Store) SetRetention(ctx context.Context, outbox string, r admin.Retention) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, "select "+s.table("set_retention")+"($1, nullif($2::interval, interval '0'), nullif($3::bigint, 0))", outbox, r.Age, r.Bytes)
	if sqlState(err) == "42P01" {
		return noOutbox(outbox)
	}
	return s.explain(err)
}

// DropSubscription removes a subscription with its cursor, parked messages, dead letters and replays.
func (s *Store) DropSubscription(ctx context.Context, outbox, subscription string) error {
	if _, err := s.subscription(ctx, outbox, subscription); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, "select "+s.table("drop_subscription")+"($1, $2)", outbox, subscription)
	if sqlState(err) == "42704" {
		return noSubscription(outbox, subscription)
	}
	return s.explain(err)
}

func noSubscription(outbox, name string) error {
	return penstock.WithHint(fmt.Errorf("%w: outbox %q has no %q", penstock.ErrNoSubscription, outbox, name), "penstock status shows those there are")
}

// ParkedKeys describes the parked keys.
func (s *Store) ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]admin.ParkedKey, error) {
	id, err := s.subscription(ctx, outbox, subscription)
	if err != nil {
		return nil, err
	}
	keys, err := list(ctx, s.pool, func(row pgx.CollectableRow) (k admin.ParkedKey, err error) {
		var h pg.History
		var failures []byte
		if err := row.Scan(&k.Key, &k.Messages, &k.FirstSeq, &k.Attempt, &failures, (*zeronull.Timestamptz)(&k.Since), (*zeronull.Timestamptz)(&k.Retry), &k.Held); err != nil {
			return k, err
		}
		h.Parse(failures)
		k.Err, k.Since, k.Retry = h.LastError(), k.Since.UTC(), k.Retry.UTC()
		return k, nil
	}, statement("parked_keys", s.schema, outbox), id, max(limit, 0))
	return keys, s.explain(err)
}

// RetryParked implements driver.Operator. The relay makes the keys due with its next write.
func (s *Store) RetryParked(ctx context.Context, outbox, subscription string, keys ...string) (n int, err error) {
	id, err := s.subscription(ctx, outbox, subscription)
	if err != nil {
		return 0, err
	}
	names := []string{""}
	if len(keys) > 0 {
		names = names[:0]
		for _, key := range keys {
			names = append(names, keyName(key))
		}
	}
	err = s.pool.QueryRow(ctx, statement("retry_parked", s.schema, outbox), id, names).Scan(&n)
	return n, s.explain(err)
}

// GiveUpParked implements driver.Operator. The relay makes the key due with its next write, and notes the order.
func (s *Store) GiveUpParked(ctx context.Context, outbox, subscription string, seq int64, reason string) (int, error) {
	reason, err := admin.GiveUpReason(reason)
	if err != nil {
		return 0, err
	}
	id, err := s.subscription(ctx, outbox, subscription)
	if err != nil {
		return 0, err
	}
	tag, err := s.pool.Exec(ctx, statement("give_up_parked", s.schema, outbox), id, seq, reason)
	return int(tag.RowsAffected()), s.explain(err)
}
