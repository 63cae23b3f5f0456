package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// subscription is one row of penstock_subscriptions, without what changes.
type subscription struct {
	box outbox
	id  int64
}

func findSubscription(ctx context.Context, q querier, name, sub string) (subscription, error) {
	box, err := findOutbox(ctx, q, name)
	if err != nil {
		return subscription{}, err
	}
	found := subscription{box: box}
	err = q.QueryRowContext(ctx, `select id from penstock_subscriptions where outbox_id = ? and name = ?`, box.id, sub).Scan(&found.id)
	if errors.Is(err, sql.ErrNoRows) {
		return found, penstock.WithHint(fmt.Errorf("subscription %q of outbox %q: %w", sub, name, penstock.ErrNoSubscription),
			"see its subscriptions with: penstock status; a relay makes one when it reads for the first time")
	}
	return found, err
}

// DropSubscription implements driver.Operator.
func (s *Store) DropSubscription(ctx context.Context, outbox, subscription string) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sub, err := findSubscription(ctx, tx, outbox, subscription)
		if err != nil {
			return err
		}
		return sub.drop(ctx, tx)
	})
}

func (sub subscription) drop(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, statement("drop_subscription"), sub.id)
	return err
}

// RetryParked implements driver.Operator.
func (s *Store) RetryParked(ctx context.Context, outbox, subscription string, keys ...string) (n int, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sub, err := findSubscription(ctx, tx, outbox, subscription)
		if err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, statement("retry_parked"), sql.Named("subscription", sub.id), sql.Named("now", time.Now().UnixMicro()),
			sql.Named("all", len(keys) == 0), sql.Named("keys", array(keys)))
		if err != nil {
			return err
		}
		due, err := done.RowsAffected()
		n = int(due)
		return err
	})
	return n, err
}

// ParkedKeys implements driver.Operator.
func (s *Store) ParkedKeys(ctx context.Context, outbox, subscription string, limit int) ([]admin.ParkedKey, error) {
	var keys []admin.ParkedKey
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sub, err := findSubscription(ctx, tx, outbox, subscription)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, statement("parked_keys"), sub.id, max(limit, 0))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var k admin.ParkedKey
			var due int64
			var past string
			if err := rows.Scan(&k.Key, &k.Messages, &k.FirstSeq, &due, &past); err != nil {
				return err
			}
			h := readHistory(past)
			k.Attempt, k.Since, k.Err = h.Attempt, h.Since, h.LastError()
			k.Retry, k.Held = fromMicros(due), due == 0
			keys = append(keys, k)
		}
		return rows.Err()
	})
	return keys, err
}
