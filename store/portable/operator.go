package portable

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/tables"
)

// subscription is one row of the subscriptions, without what changes.
type subscription struct {
	box outbox
	id  int64
}

// onSubscription runs fn while the subscription's row is locked: entries change under that lock only.
func (s *Store) onSubscription(ctx context.Context, name, of string, fn func(tx pgx.Tx, sub subscription) error) error {
	return s.tx(ctx, func(tx pgx.Tx) error {
		sub, err := s.findSubscription(ctx, tx, name, of, "for update")
		if err != nil {
			return err
		}
		return fn(tx, sub)
	})
}

func (s *Store) findSubscription(ctx context.Context, q querier, name, of, lock string) (subscription, error) {
	box, err := s.findOutbox(ctx, q, name, "")
	if err != nil {
		return subscription{}, err
	}
	sub := subscription{box: box}
	err = q.QueryRow(ctx, s.sql("select id from {schema}.subscriptions where outbox_id = $1 and name = $2 "+lock, ""), box.ID, of).Scan(&sub.id)
	if isNoRows(err) {
		return sub, tables.NoSubscription(name, of)
	}
	return sub, err
}

// SetRetention implements penstock.Operator.
func (s *Store) SetRetention(ctx context.Context, outbox string, r penstock.Retention) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.tx(ctx, func(tx pgx.Tx) error {
		box, err := s.findOutbox(ctx, tx, outbox, "for update")
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(s.sql("update {schema}.outboxes set keep_age = $2, keep_bytes = $3 where id = $1", ""), box.ID, int64(r.Age), r.Bytes)
		s.queueMarks(b, box.ID)
		return tx.SendBatch(ctx, b).Close()
	})
}

// queueMarks says anew whether what is settled is noted or deleted. A Settle has its subscription's row locked: it is one or the other for all of it.
func (s *Store) queueMarks(b *pgx.Batch, outbox int64) {
	b.Queue(s.sql("select from {schema}.subscriptions where outbox_id = $1 order by id for update", ""), outbox)
	b.Queue(s.sql(`update {schema}.subscriptions set marks = (select count(*) from {schema}.subscriptions where outbox_id = $1) > 1
		or exists (select from {schema}.outboxes where id = $1 and (keep_age <> 0 or keep_bytes <> 0)) where outbox_id = $1`, ""), outbox)
}

// DropSubscription implements penstock.Operator.
func (s *Store) DropSubscription(ctx context.Context, outbox, subscription string) error {
	return s.tx(ctx, func(tx pgx.Tx) error {
		box, err := s.findOutbox(ctx, tx, outbox, "for update")
		if err != nil {
			return err
		}
		sub, err := s.findSubscription(ctx, tx, outbox, subscription, "for update")
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		for _, table := range []string{"entries", "progress", "members"} {
			b.Queue(s.sql("delete from {schema}."+table+" where subscription_id = $1", ""), sub.id)
		}
		b.Queue(s.sql("delete from {schema}.subscriptions where id = $1", ""), sub.id)
		s.queueMarks(b, box.ID)
		return tx.SendBatch(ctx, b).Close()
	})
}

// RetryParked implements penstock.Operator.
func (s *Store) RetryParked(ctx context.Context, outbox, name string, keys ...string) (n int, err error) {
	err = s.onSubscription(ctx, outbox, name, func(tx pgx.Tx, sub subscription) error {
		done, err := tx.Exec(ctx, s.sql(`update {schema}.entries e set due = clock_timestamp()
			 where e.subscription_id = $1 and e.head and e.due > clock_timestamp() and ($2 or e.line = any ($3::text[]))
			   and not (e.line is not null and exists (select from {schema}.entries w where w.subscription_id = $1 and w.hold = e.line))`, ""),
			sub.id, len(keys) == 0, orEmpty(keys))
		n = int(done.RowsAffected())
		return err
	})
	return n, err
}

// ParkedKeys implements penstock.Operator.
func (s *Store) ParkedKeys(ctx context.Context, outbox, subscription string, limit int) (keys []penstock.ParkedKey, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	sub, err := s.findSubscription(ctx, s.pool, outbox, subscription, "")
	if err != nil {
		return nil, s.explain(err)
	}
	rows, err := s.pool.Query(ctx, s.sql("parked_keys", ""), sub.id, max(limit, 0))
	if err != nil {
		return nil, s.explain(err)
	}
	var k penstock.ParkedKey
	var due, since *time.Time
	var failures []byte
	_, err = pgx.ForEachRow(rows, []any{&k.Key, &k.Messages, &k.FirstSeq, &k.Attempt, &since, &failures, &due, &k.Held}, func() error {
		var h pg.History
		if err := h.Parse(failures); err != nil {
			return err
		}
		found := k
		found.Err, found.Since, found.Retry = h.LastError(), timeOf(since), timeOf(due)
		keys = append(keys, found)
		return nil
	})
	return keys, s.explain(err)
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// Replay implements penstock.Operator: what is noted as settled is to be delivered again.
func (s *Store) Replay(ctx context.Context, r penstock.Replay) (n int64, err error) {
	err = s.onSubscription(ctx, r.Outbox, r.Subscription, func(tx pgx.Tx, sub subscription) error {
		done, err := tx.Exec(ctx, s.sql("replay", r.Outbox), sub.id, r.FromSeq, r.ToSeq, orNullTime(r.From), orNullTime(r.To))
		n = done.RowsAffected()
		return err
	})
	return n, err
}

// DeadLetters implements penstock.Operator.
func (s *Store) DeadLetters(ctx context.Context, q penstock.DeadLetterQuery) ([]penstock.DeadLetter, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	sub, err := s.findSubscription(ctx, s.pool, q.Outbox, q.Subscription, "")
	if err != nil {
		return nil, s.explain(err)
	}
	found, err := s.deadLetters(ctx, s.pool, sub, q)
	letters := make([]penstock.DeadLetter, len(found))
	for i := range found {
		letters[i] = found[i].DeadLetter
	}
	return letters, s.explain(err)
}

// deadLetter is one with its place.
type deadLetter struct {
	penstock.DeadLetter
	tables.Flight
}

func (s *Store) deadLetters(ctx context.Context, on querier, sub subscription, q penstock.DeadLetterQuery) (found []deadLetter, err error) {
	var seqs []int64
	var times []time.Time
	for _, id := range q.IDs {
		if seq, at, ok := sub.box.IDs.Parse(id); ok {
			seqs, times = append(seqs, seq), append(times, at)
		}
	}
	most := any(nil)
	if q.Limit > 0 {
		most = q.Limit
	}
	rows, err := on.Query(ctx, s.sql("dead", sub.box.Name), sub.id, orNullSlice(q.Seqs), orNullSlice(q.IDs), orEmpty(seqs), q.Key, q.Topic, q.Error,
		orNullTime(q.DiedBefore), orNullTime(q.DiedAfter), q.AfterSeq, most, times)
	if err != nil {
		return nil, err
	}
	var r tables.Row
	var attempts int
	var since *time.Time
	var failures []byte
	var died time.Time
	var held bool
	_, err = pgx.ForEachRow(rows, r.Dest(&attempts, &since, &failures, &died, &held), func() error {
		var h pg.History
		if err := h.Parse(failures); err != nil {
			return err
		}
		m, err := r.Message(&sub.box.IDs)
		m.Attempt, m.FailedSince = attempts, timeOf(since)
		found = append(found, deadLetter{penstock.DeadLetter{Message: m, Failures: h.Failures, At: died.UTC(), Held: held}, r.Flight})
		return err
	})
	return found, err
}

func orNullSlice[T any](s []T) any {
	if len(s) == 0 {
		return nil
	}
	return s
}

// RetryDeadLetters implements penstock.Operator: it parks them out of
// order, due at once. A hold stays until they are delivered.
func (s *Store) RetryDeadLetters(ctx context.Context, q penstock.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, func(b *pgx.Batch, sub subscription, _ []deadLetter, seqs []int64) {
		b.Queue(s.sql("update {schema}.entries set state = 1, head = true, due = clock_timestamp(), died_at = null where subscription_id = $1 and seq = any ($2)", ""), sub.id, seqs)
	})
}

// DiscardDeadLetters implements penstock.Operator.
func (s *Store) DiscardDeadLetters(ctx context.Context, q penstock.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, func(b *pgx.Batch, sub subscription, letters []deadLetter, seqs []int64) {
		var released []string
		buckets, times := make([]int16, len(letters)), make([]time.Time, len(letters))
		for i, l := range letters {
			buckets[i], times[i] = l.Bucket, l.TS
			if l.Held && !slices.Contains(released, l.Message.Key) {
				released = append(released, l.Message.Key)
			}
		}
		b.Queue(s.sql("update {schema}.entries set state = 0, hold = null, failures = null where subscription_id = $1 and seq = any ($2)", ""), sub.id, seqs)
		b.Queue(s.sql("release", ""), sub.id, orEmpty(released))
		// Nobody else needs it: it is as if it were delivered.
		b.Queue(s.sql("delete from {schema}.entries where subscription_id = $1 and seq = any ($2) and exists (select from {schema}.subscriptions where id = $1 and not marks)", ""), sub.id, seqs)
		b.Queue(s.sql("reclaim", sub.box.Name)+s.sql(" and exists (select from {schema}.subscriptions where id = $4 and not marks)", ""), buckets, times, seqs, sub.id)
	})
}

// takeDeadLetters does something with the chosen ones.
func (s *Store) takeDeadLetters(ctx context.Context, q penstock.DeadLetterQuery, with func(b *pgx.Batch, sub subscription, letters []deadLetter, seqs []int64)) (n int, err error) {
	err = s.onSubscription(ctx, q.Outbox, q.Subscription, func(tx pgx.Tx, sub subscription) error {
		letters, err := s.deadLetters(ctx, tx, sub, q)
		if n = len(letters); err != nil || n == 0 {
			return err
		}
		seqs := make([]int64, n)
		for i, l := range letters {
			seqs[i] = l.Message.Seq
		}
		b := &pgx.Batch{}
		with(b, sub, letters, seqs)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
