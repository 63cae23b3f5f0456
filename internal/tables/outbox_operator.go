package tables

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// subscription is one row of the subscriptions, without the columns that change.
type subscription struct {
	box Outbox
	id  int64
}

// args of a statement about the subscription.
func (sub *subscription) args(more Args) Args { return sub.box.Args(Args{"sub": sub.id}).With(more) }

// onSubscription runs fn while the subscription's row is locked: entries change under that lock only.
func (s *Outboxes) onSubscription(ctx context.Context, name, of string, fn func(tx Tx, sub *subscription) error) error {
	return s.on.Within(ctx, func(tx Tx) error {
		sub, err := s.findSubscription(ctx, tx, name, of, "", "for update")
		if err != nil {
			return err
		}
		return fn(tx, sub)
	})
}

func (s *Outboxes) findSubscription(ctx context.Context, on Runner, name, of, lockOutbox, lock string) (*subscription, error) {
	if err := s.on.Ready(ctx); err != nil {
		return nil, err
	}
	box, err := s.find(ctx, on, name, lockOutbox)
	if err != nil {
		return nil, err
	}
	sub := &subscription{box: box}
	there := false
	b := new(Batch).Row(&there, "select id from {schema}.subscriptions where outbox_id = {outbox} and name = {name} "+lock, box.Args(Args{"name": of}), &sub.id)
	if err = on.Run(ctx, b); err == nil && !there {
		err = NoSubscription(name, of)
	}
	return sub, err
}

// DropSubscription implements driver.Operator.
func (s *Outboxes) DropSubscription(ctx context.Context, outbox, name string) error {
	return s.on.Within(ctx, func(tx Tx) error {
		sub, err := s.findSubscription(ctx, tx, outbox, name, "for update", "for update")
		if err != nil {
			return err
		}
		b := &Batch{}
		for _, table := range s.on.PerSubscription() {
			b.Do("delete from {schema}."+table+" where subscription_id = {sub}", sub.args(nil))
		}
		b.Do("delete from {schema}.subscriptions where id = {sub}", sub.args(nil))
		keepSettled(b, &sub.box)
		return tx.Finish(ctx, b)
	})
}

// RetryParked implements driver.Operator.
func (s *Outboxes) RetryParked(ctx context.Context, outbox, name string, keys ...string) (int, error) {
	var n int64
	err := s.onSubscription(ctx, outbox, name, func(tx Tx, sub *subscription) error {
		b := new(Batch).Counted(&n, "retry_parked", sub.args(Args{"all": len(keys) == 0, "keys": keys}))
		return tx.Finish(ctx, b)
	})
	return int(n), err
}

// GiveUpParked implements driver.Operator. The message is due at once, with the order as its last failure.
func (s *Outboxes) GiveUpParked(ctx context.Context, outbox, name string, seq int64, reason string) (int, error) {
	reason, err := admin.GiveUpReason(reason)
	if err != nil {
		return 0, err
	}
	var n int64
	err = s.onSubscription(ctx, outbox, name, func(tx Tx, sub *subscription) error {
		n = 0
		of, before := sub.args(Args{"seqs": []int64{seq}}), map[int64]*Entry{}
		if err := tx.Run(ctx, new(Batch).Rows(EntriesBefore(before), "read_entries", of)); err != nil || before[seq] == nil {
			return err
		}
		h := pg.History{Attempt: before[seq].Attempts}
		h.Parse(before[seq].Failures)
		return tx.Finish(ctx, new(Batch).Counted(&n, "give_up_parked", of.With(Args{"failures": h.GiveUp(reason).JSON()})))
	})
	return int(n), err
}

// ParkedKeys implements driver.Operator.
func (s *Outboxes) ParkedKeys(ctx context.Context, outbox, name string, limit int) (keys []admin.ParkedKey, err error) {
	sub, err := s.findSubscription(ctx, s.on, outbox, name, "", "")
	if err != nil {
		return nil, err
	}
	return keys, s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var k admin.ParkedKey
		var due, since *time.Time
		var failures []byte
		if err := scan(&k.Key, &k.Messages, &k.FirstSeq, &k.Attempt, &since, &failures, &due, &k.Held); err != nil {
			return err
		}
		var h pg.History
		h.Parse(failures)
		k.Err, k.Since, k.Retry = h.LastError(), timeOf(since), timeOf(due)
		keys = append(keys, k)
		return nil
	}, "parked_keys", sub.args(Args{"most": max(limit, 0)})))
}

// Replay implements driver.Operator: messages that are noted as settled are delivered again.
func (s *Outboxes) Replay(ctx context.Context, r admin.Replay) (n int64, err error) {
	err = s.onSubscription(ctx, r.Outbox, r.Subscription, func(tx Tx, sub *subscription) error {
		if err := sub.box.keepsNothing("it keeps no settled messages, so there are none to replay"); err != nil {
			return err
		}
		b := new(Batch).Counted(&n, "replay", sub.args(Args{"from_seq": r.FromSeq, "to_seq": r.ToSeq, "from": OrNull(r.From), "to": OrNull(r.To)}))
		if r.CountOnly {
			return cmp.Or(tx.Run(ctx, b), errEnough) // which rolls it back
		}
		return tx.Finish(ctx, b)
	})
	if r.CountOnly && errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}

// DeadLetters implements driver.Operator.
func (s *Outboxes) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	sub, err := s.findSubscription(ctx, s.on, q.Outbox, q.Subscription, "", "")
	if err != nil {
		return nil, err
	}
	letters, _, err := s.deadLetters(ctx, s.on, sub, q)
	return letters, err
}

// DeadLetterArgs are the arguments of a statement about chosen dead letters.
func DeadLetterArgs(ctx context.Context, s *Outboxes, q admin.DeadLetterQuery) (Args, error) {
	sub, err := s.findSubscription(ctx, s.on, q.Outbox, q.Subscription, "", "")
	if err != nil {
		return nil, err
	}
	return sub.choose(q), nil
}

// choose makes the arguments that narrow a query.
func (sub *subscription) choose(q admin.DeadLetterQuery) Args {
	var seqs []int64
	times := []time.Time{}
	for _, id := range q.IDs {
		if seq, at, ok := sub.box.IDs.Parse(id); ok {
			seqs, times = append(seqs, seq), append(times, at.UTC())
		}
	}
	most := q.Limit
	if most == 0 {
		most = math.MaxInt64
	}
	return sub.args(Args{"any_seq": len(q.Seqs) == 0, "seqs": q.Seqs, "any_id": len(q.IDs) == 0, "ids": q.IDs, "derived": seqs, "times": times, "key": q.Key, "topic": q.Topic, "error": q.Error,
		"died_before": OrNull(q.DiedBefore), "died_after": OrNull(q.DiedAfter), "after": q.AfterSeq, "most": most})
}

// errEnough ends the reading of rows, or a transaction that was only to count.
var errEnough = errors.New("there is no room for more")

// deadLetters are those chosen, and where they are.
func (s *Outboxes) deadLetters(ctx context.Context, on Runner, sub *subscription, q admin.DeadLetterQuery) (found []admin.DeadLetter, at messages, err error) {
	bytes := 0
	if err = on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var r Row
		var attempts int
		var since *time.Time
		var failures []byte
		var letter admin.DeadLetter
		if err := scan(r.Dest(&attempts, &since, &failures, &letter.At, &letter.Held)...); err != nil {
			return err
		}
		var h pg.History
		h.Parse(failures)
		m, err := r.Message(&sub.box)
		if len(q.IDs) > 0 && !slices.Contains(q.IDs, m.ID) { // it has the number of one and the time of another
			return err
		}
		m.Attempt, m.FailedSince = attempts, timeOf(since)
		letter.Message, letter.Failures, letter.At = m, h.Failures, letter.At.UTC()
		found = append(found, letter)
		at.add(r.Flight, r.Seq)
		if bytes += len(m.Payload); err == nil && q.Bytes > 0 && bytes >= q.Bytes {
			return errEnough
		}
		return err
	}, "dead", sub.choose(q))); errors.Is(err, errEnough) {
		err = nil
	}
	return found, at, err
}

// RetryDeadLetters implements driver.Operator: it parks them out of
// order, due at once. A hold stays until they are delivered.
func (s *Outboxes) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, "revive_dead")
}

// DiscardDeadLetters implements driver.Operator. If no other subscription needs them, it is as if they were
// delivered.
func (s *Outboxes) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	return s.takeDeadLetters(ctx, q, "discard_dead", "release", "end_discarded_entries", "end_discarded")
}

// takeDeadLetters runs statements with the chosen ones, and the keys that they hold.
func (s *Outboxes) takeDeadLetters(ctx context.Context, q admin.DeadLetterQuery, statements ...string) (n int, err error) {
	err = s.onSubscription(ctx, q.Outbox, q.Subscription, func(tx Tx, sub *subscription) error {
		letters, at, err := s.deadLetters(ctx, tx, sub, q)
		if n = len(letters); err != nil || n == 0 {
			return err
		}
		var held []string
		for _, l := range letters {
			if l.Held && !slices.Contains(held, l.Message.Key) {
				held = append(held, l.Message.Key)
			}
		}
		b := &Batch{}
		for _, statement := range statements {
			args := sub.args(at.args()).With(Args{"keys": held})
			if sub.box.Adopted != nil && statement == "end_discarded" {
				statement, args["allowed"], args["forgiven"] = sub.box.Adopted.Settles, SQL("1 = 1"), sub.box.Words["set"]
			}
			b.Do(statement, args)
		}
		return tx.Finish(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
