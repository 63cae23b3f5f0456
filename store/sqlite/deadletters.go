package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/penstock/penstock"
)

// DeadLetters implements penstock.Store.
func (s *Store) DeadLetters(ctx context.Context, name, subscription string, limit int) ([]penstock.DeadLetter, error) {
	var letters []penstock.DeadLetter
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		box, err := findOutbox(ctx, tx, name)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, deadLettersSQL, box.id, subscription, max(limit, 0))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		var r row
		var attempt int
		var at int64
		var letter penstock.DeadLetter
		dest := append([]any{&attempt, &letter.Err, &at}, r.dest()...)
		for rows.Next() {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			letter.Message = r.message(box.uid, attempt)
			letter.At = time.UnixMilli(at).UTC()
			letters = append(letters, letter)
		}
		return rows.Err()
	})
	return letters, err
}

// RetryDeadLetters implements penstock.Store. They stay in their table, marked,
// until they are settled once more.
func (s *Store) RetryDeadLetters(ctx context.Context, name, subscription string, seqs ...int64) (int, error) {
	retried := 0
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		retried = 0
		box, err := findOutbox(ctx, tx, name)
		if err != nil {
			return err
		}
		var subID, number int64
		err = tx.QueryRowContext(ctx, `select id, retries from penstock_subscriptions where outbox_id = ? and name = ?`, box.id, subscription).Scan(&subID, &number)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, seq := range seqs {
			done, err := tx.ExecContext(ctx, `update penstock_dead_letters set retry = ?, attempt = attempt + 1 where subscription_id = ? and seq = ? and retry is null`,
				number+1, subID, seq)
			if err != nil {
				return err
			}
			n, err := done.RowsAffected()
			if err != nil {
				return err
			}
			number += n
			retried += int(n)
		}
		_, err = tx.ExecContext(ctx, `update penstock_subscriptions set retries = ? where id = ?`, number, subID)
		return err
	})
	return retried, err
}
