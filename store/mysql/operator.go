package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

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
func (s *Store) onSubscription(ctx context.Context, name, of string, fn func(t *tx, sub subscription) error) error {
	return s.tx(ctx, func(t *tx) error {
		sub, err := s.findSubscription(ctx, t, name, of, "for update")
		if err != nil {
			return err
		}
		return fn(t, sub)
	})
}

func (s *Store) findSubscription(ctx context.Context, on runner, name, of, lock string) (subscription, error) {
	box, err := s.findOutbox(ctx, on, name, "")
	if err != nil {
		return subscription{}, err
	}
	sub := subscription{box: box}
	there := false
	b := &batch{}
	b.read(func(rows *sql.Rows) error { there = true; return rows.Scan(&sub.id) },
		s.sql("select id from {schema}.subscriptions where outbox_id = {outbox} and name = ? "+lock, "", words{"outbox": box.ID}), []byte(of))
	err = on.run(ctx, b)
	if err == nil && !there {
		err = tables.NoSubscription(name, of)
	}
	return sub, err
}

// SetRetention implements penstock.Operator.
func (s *Store) SetRetention(ctx context.Context, outbox string, r penstock.Retention) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return s.tx(ctx, func(t *tx) error {
		box, err := s.findOutbox(ctx, t, outbox, "for update")
		if err != nil {
			return err
		}
		b := &batch{}
		b.add(s.sql("update {schema}.outboxes set keep_age = {age}, keep_bytes = {bytes} where id = {outbox}", "", words{"age": int64(r.Age), "bytes": r.Bytes, "outbox": box.ID}))
		s.queueMarks(b, &box)
		return t.finish(ctx, b)
	})
}

// queueMarks says anew whether what is settled is noted or deleted. A Settle has its subscription's row locked: it is one or the other for all of it.
func (s *Store) queueMarks(b *batch, box *outbox) {
	s.lockSubscriptions(b, box)
	b.add(s.sql(`update {schema}.subscriptions set marks = (select c.n from (select count(*) as n from {schema}.subscriptions where outbox_id = {outbox}) c) > 1
		or exists (select 1 from {schema}.outboxes where id = {outbox} and (keep_age <> 0 or keep_bytes <> 0)) where outbox_id = {outbox}`, "", words{"outbox": box.ID}))
}

// DropSubscription implements penstock.Operator.
func (s *Store) DropSubscription(ctx context.Context, outbox, subscription string) error {
	return s.tx(ctx, func(t *tx) error {
		if _, err := s.findOutbox(ctx, t, outbox, "for update"); err != nil {
			return err
		}
		sub, err := s.findSubscription(ctx, t, outbox, subscription, "for update")
		if err != nil {
			return err
		}
		b := &batch{}
		for _, statement := range []string{"entries where subscription_id", "progress where subscription_id", "subscriptions where id"} {
			b.add(s.sql("delete from {schema}."+statement+" = {sub}", "", words{"sub": sub.id}))
		}
		s.queueMarks(b, &sub.box)
		return t.finish(ctx, b)
	})
}

// RetryParked implements penstock.Operator.
func (s *Store) RetryParked(ctx context.Context, outbox, name string, keys ...string) (int, error) {
	var n int64
	err := s.onSubscription(ctx, outbox, name, func(t *tx, sub subscription) error {
		placeholders, args := texts(keys)
		b := &batch{}
		b.add(s.sql(`update {schema}.entries e
			left join (select distinct w.hold from {schema}.entries w where w.subscription_id = {sub} and w.hold is not null) held on held.hold = e.parked_key
			set e.due = utc_timestamp(6)
			where e.subscription_id = {sub} and e.head = 1 and e.due > utc_timestamp(6) and ({all} or e.parked_key in ({keys})) and held.hold is null`,
			"", words{"sub": sub.id, "all": len(keys) == 0, "keys": placeholders}), args...)
		b.counted(&n)
		return t.finish(ctx, b)
	})
	return int(n), err
}

// ParkedKeys implements penstock.Operator.
func (s *Store) ParkedKeys(ctx context.Context, outbox, subscription string, limit int) (keys []penstock.ParkedKey, err error) {
	if err := s.use(ctx); err != nil {
		return nil, err
	}
	sub, err := s.findSubscription(ctx, s, outbox, subscription, "")
	if err != nil {
		return nil, s.explain(err)
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var k penstock.ParkedKey
		var due, since sql.NullTime
		var failures []byte
		if err := rows.Scan(&k.Key, &k.Messages, &k.FirstSeq, &k.Attempt, &since, &failures, &due, &k.Held); err != nil {
			return err
		}
		var h pg.History
		err := h.Parse(failures)
		k.Err, k.Since, k.Retry = h.LastError(), timeOf(since), timeOf(due)
		keys = append(keys, k)
		return err
	}, s.sql("parked_keys", "", words{"sub": sub.id, "most": max(limit, 0)}))
	return keys, s.explain(s.ask(ctx, b))
}

func timeOf(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// Replay implements penstock.Operator: what is noted as settled is to be delivered again.
func (s *Store) Replay(ctx context.Context, r penstock.Replay) (n int64, err error) {
	err = s.onSubscription(ctx, r.Outbox, r.Subscription, func(t *tx, sub subscription) error {
		where, args := "", []any(nil)
		if !r.From.IsZero() {
			where, args = where+" and e.ts >= ?", append(args, r.From.UTC())
		}
		if !r.To.IsZero() {
			where, args = where+" and e.ts < ?", append(args, r.To.UTC())
		}
		if r.ToSeq != 0 {
			where += " and e.seq <= " + fmt.Sprint(r.ToSeq)
		}
		w := words{"sub": sub.id, "from_seq": r.FromSeq, "where": where}
		b := &batch{}
		b.read(func(rows *sql.Rows) error { return rows.Scan(&n) }, s.sql("select count(*) from {schema}.entries e where {replayed}", r.Outbox, words{"replayed": s.sql("replayed", r.Outbox, w)}), args...)
		b.add(s.sql("update {schema}.entries e set e.state = 3 where {replayed}", r.Outbox, words{"replayed": s.sql("replayed", r.Outbox, w)}), args...)
		return t.finish(ctx, b)
	})
	return n, err
}

// DeadLetters implements penstock.Operator.
func (s *Store) DeadLetters(ctx context.Context, q penstock.DeadLetterQuery) ([]penstock.DeadLetter, error) {
	if err := s.use(ctx); err != nil {
		return nil, err
	}
	sub, err := s.findSubscription(ctx, s, q.Outbox, q.Subscription, "")
	if err != nil {
		return nil, s.explain(err)
	}
	letters, err := s.deadLetters(ctx, s, sub, q)
	return letters, s.explain(err)
}

func (s *Store) deadLetters(ctx context.Context, on runner, sub subscription, q penstock.DeadLetterQuery) (found []penstock.DeadLetter, err error) {
	var where strings.Builder
	var args []any
	and := func(text string, more ...any) {
		where.WriteString(" and " + text)
		args = append(args, more...)
	}
	if len(q.Seqs) > 0 {
		and("e.seq in (" + list(q.Seqs) + ")")
	}
	if len(q.IDs) > 0 {
		ids, chosen := texts(q.IDs)
		derived := "false"
		for _, id := range q.IDs {
			if seq, created, ok := sub.box.IDs.Parse(id); ok {
				derived += fmt.Sprintf(" or e.seq = %d and e.ts = %s", seq, at(created))
			}
		}
		and("(t.id in ("+ids+") or coalesce(t.id, '') = '' and ("+derived+"))", chosen...)
	}
	if q.Key != "" {
		and("e.`key` = ?", []byte(q.Key))
	}
	if q.Topic != "" {
		and("t.topic = ?", []byte(q.Topic))
	}
	if q.Error != "" {
		and("locate(?, e.error) > 0", []byte(q.Error))
	}
	if !q.DiedBefore.IsZero() {
		and("e.died_at < ?", q.DiedBefore.UTC())
	}
	if !q.DiedAfter.IsZero() {
		and("e.died_at > ?", q.DiedAfter.UTC())
	}
	limit := ""
	if q.Limit > 0 {
		limit = fmt.Sprintf("limit %d", q.Limit)
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var r tables.Row
		var attempts int
		var since sql.NullTime
		var failures []byte
		var letter penstock.DeadLetter
		if err := rows.Scan(r.Dest(&attempts, &since, &failures, &letter.At, &letter.Held)...); err != nil {
			return err
		}
		var h pg.History
		if err := h.Parse(failures); err != nil {
			return err
		}
		m, err := r.Message(&sub.box.IDs)
		m.Attempt, m.FailedSince = attempts, timeOf(since)
		letter.Message, letter.Failures = m, h.Failures
		found = append(found, letter)
		return err
	}, s.sql("dead", sub.box.Name, words{"sub": sub.id, "after": q.AfterSeq, "where": where.String(), "limit": limit}), args...)
	return found, on.run(ctx, b)
}

// RetryDeadLetters implements penstock.Operator: it parks them out of
// order, due at once. A hold stays until they are delivered.
func (s *Store) RetryDeadLetters(ctx context.Context, q penstock.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, func(b *batch, sub subscription, _ []penstock.DeadLetter, w words) {
		b.add(s.sql("update {these} straight_join {schema}.entries e force index (primary) on e.subscription_id = {sub} and e.seq = d.seq set e.state = 1, e.head = true, e.due = utc_timestamp(6), e.died_at = null", "", w))
	})
}

// DiscardDeadLetters implements penstock.Operator.
func (s *Store) DiscardDeadLetters(ctx context.Context, q penstock.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, func(b *batch, sub subscription, letters []penstock.DeadLetter, w words) {
		b.add(s.sql("update {these} straight_join {schema}.entries e force index (primary) on e.subscription_id = {sub} and e.seq = d.seq set e.state = 0, e.hold = null, e.failures = null, e.error = null", "", w))
		var released []string
		for _, l := range letters {
			if l.Held {
				released = append(released, l.Message.Key)
			}
		}
		if len(released) > 0 {
			keys, args := texts(released)
			b.add(s.sql("release", "", words{"sub": sub.id, "keys": keys}), args...)
		}
		// Nobody else needs it: it is as if it were delivered.
		const alone = " where exists (select 1 from {schema}.subscriptions s where s.id = {sub} and not s.marks)"
		b.add(s.sql("delete {schema}.entries from {these} straight_join {schema}.entries force index (primary) on subscription_id = {sub} and entries.seq = d.seq"+alone, "", w))
		b.add(s.sql("delete {table} from {these} straight_join {table} force index (primary) on {table}.seq = d.seq"+alone, sub.box.Name, w))
	})
}

// takeDeadLetters does something with the chosen ones.
func (s *Store) takeDeadLetters(ctx context.Context, q penstock.DeadLetterQuery, with func(b *batch, sub subscription, letters []penstock.DeadLetter, w words)) (n int, err error) {
	err = s.onSubscription(ctx, q.Outbox, q.Subscription, func(t *tx, sub subscription) error {
		letters, err := s.deadLetters(ctx, t, sub, q)
		if n = len(letters); err != nil || n == 0 {
			return err
		}
		seqs := make([]int64, n)
		for i, l := range letters {
			seqs[i] = l.Message.Seq
		}
		b := &batch{}
		with(b, sub, letters, words{"sub": sub.id, "these": these(seqs)})
		return t.finish(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
