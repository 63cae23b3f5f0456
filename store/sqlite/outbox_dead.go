package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
)

// DeadLetters implements driver.Operator.
func (s *Store) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	var found []admin.DeadLetter
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sub, err := findSubscription(ctx, tx, q.Outbox, q.Subscription)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, strings.ReplaceAll(statement("dead_letters"), "{chosen}", statement("chosen")), sub.choose(q)...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		var r row
		var past string
		var at int64
		var held bool
		dest := append([]any{&past, &at, &held}, r.dest()...)
		bytes := 0
		for rows.Next() {
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			h := readHistory(past)
			letter := admin.DeadLetter{Message: r.message(sub.box.ids), Failures: h.Failures, At: fromMicros(at), Held: held}
			letter.Message.Attempt, letter.Message.FailedSince = h.Attempt, h.Since
			found = append(found, letter)
			if bytes += len(letter.Message.Payload); q.Bytes > 0 && bytes >= q.Bytes {
				break
			}
		}
		return rows.Err()
	})
	return found, err
}

// DeadLetterCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadLetterCauses(ctx context.Context, q admin.DeadLetterQuery) (found []admin.DeadCause, err error) {
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sub, err := findSubscription(ctx, tx, q.Outbox, q.Subscription)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, strings.ReplaceAll(statement("dead_letter_causes"), "{chosen}", statement("chosen")), sub.choose(q)...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var c admin.DeadCause
			if err := scanned(rows)(&c.Error, &c.Letters, &c.First, &c.Last); err != nil {
				return err
			}
			found = append(found, c)
		}
		return rows.Err()
	})
	return found, err
}

// DeadNumbers returns up to most seqs of a subscription's dead letters, in order, those after the given one. Without a subscription it
// returns the ids of a queue's dead letters.
func (s *Store) DeadNumbers(ctx context.Context, in, subscription string, after int64, most int) (found []int64, err error) {
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		table, number, owner, id := "penstock_dead_letters", "seq", "subscription_id", int64(0)
		if subscription == "" {
			row, err := findQueue(ctx, tx, in)
			if err != nil {
				return err
			}
			table, number, owner, id = "penstock_dead_jobs", "seq", "queue_id", row.id
		} else if sub, err := findSubscription(ctx, tx, in, subscription); err != nil {
			return err
		} else {
			id = sub.id
		}
		rows, err := tx.QueryContext(ctx, fmt.Sprintf("select %[2]s from %[1]s where %[3]s = ? and %[2]s > ? order by %[2]s limit ?", table, number, owner), id, after, most)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var n int64
			if err := rows.Scan(&n); err != nil {
				return err
			}
			found = append(found, n)
		}
		return rows.Err()
	})
	return found, err
}

// RetryDeadLetters implements driver.Operator. It parks them out of order, due at
// once. A key that is held stays held until its dead letter is delivered.
func (s *Store) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, func(ctx context.Context, tx *sql.Tx, subID int64, seqs []int64) error {
		if _, err := tx.ExecContext(ctx, statement("retry_dead_letters"), subID, time.Now().UnixMicro(), array(seqs)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, statement("retry"), subID, array(seqs))
		return err
	})
}

// DiscardDeadLetters implements driver.Operator.
func (s *Store) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, func(ctx context.Context, tx *sql.Tx, subID int64, seqs []int64) error {
		return release(ctx, tx, subID, seqs, time.Now().UnixMicro())
	})
}

// takeDeadLetters deletes the chosen ones, after something was done with them.
func (s *Store) takeDeadLetters(ctx context.Context, q admin.DeadLetterQuery, first func(ctx context.Context, tx *sql.Tx, subID int64, seqs []int64) error) (n int, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sub, err := findSubscription(ctx, tx, q.Outbox, q.Subscription)
		if err != nil {
			return err
		}
		seqs, err := readColumn[int64](ctx, tx, statement("chosen"), sub.choose(q)...)
		if n = len(seqs); err != nil || n == 0 {
			return err
		}
		if err := first(ctx, tx, sub.id, seqs); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `delete from penstock_dead_letters where subscription_id = ? and seq in (select value from json_each(?))`, sub.id, array(seqs))
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// derived are those of the ids that the outbox derives, as sql/chosen.sql writes what they
// are made of.
func (o outbox) derived(ids []string) []string {
	parts := []string{}
	for _, id := range ids {
		if seq, at, ok := o.ids.Parse(id); ok {
			parts = append(parts, fmt.Sprintf("%d-%d", seq, at.UnixMilli()))
		}
	}
	return parts
}

// choose makes the parameters of sql/chosen.sql; NULL does not narrow.
func (sub subscription) choose(q admin.DeadLetterQuery) []any {
	p := map[string]any{"seqs": nil, "ids": nil, "derived": nil, "key": nil, "topic": nil, "error": nil, "before": nil, "after": nil, "after_seq": nil, "limit": -1}
	if len(q.Seqs) > 0 {
		p["seqs"] = array(q.Seqs)
	}
	if len(q.IDs) > 0 {
		p["ids"], p["derived"] = array(q.IDs), array(sub.box.derived(q.IDs))
	}
	for name, text := range map[string]string{"key": q.Key, "topic": q.Topic, "error": q.Error} {
		if text != "" {
			p[name] = text
		}
	}
	if !q.DiedBefore.IsZero() {
		p["before"] = q.DiedBefore.Add(time.Microsecond - 1).UnixMicro()
	}
	if !q.DiedAfter.IsZero() {
		p["after"] = q.DiedAfter.UnixMicro()
	}
	if q.AfterSeq != 0 {
		p["after_seq"] = q.AfterSeq
	}
	if q.Limit > 0 {
		p["limit"] = q.Limit
	}
	p["subscription"] = sub.id
	args := make([]any, 0, len(p))
	for name, value := range p {
		args = append(args, sql.Named(name, value))
	}
	return args
}
