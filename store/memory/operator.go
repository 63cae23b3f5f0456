package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock"
)

// enterSubscription is enter for an operation on one subscription.
func (s *Store) enterSubscription(ctx context.Context, name, subscription string) (*outbox, *subscription, error) {
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if sub := o.subs[subscription]; sub != nil {
		return o, sub, nil
	}
	s.db.Unlock()
	return nil, nil, fmt.Errorf("subscription %q of outbox %q: %w", subscription, name, penstock.ErrNoSubscription)
}

// DeadLetters implements penstock.Operator.
func (s *Store) DeadLetters(ctx context.Context, q penstock.DeadLetterQuery) ([]penstock.DeadLetter, error) {
	_, sub, err := s.enterSubscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	var found []penstock.DeadLetter
	for _, d := range sub.chosen(&q) {
		found = append(found, penstock.DeadLetter{Message: clone(d.msg), Failures: slices.Clone(d.failures), At: d.at, Held: d.holds})
	}
	return found, nil
}

// RetryDeadLetters parks the chosen ones in lines of their own, due at once.
func (s *Store) RetryDeadLetters(ctx context.Context, q penstock.DeadLetterQuery) (int, error) {
	_, sub, err := s.enterSubscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	chosen := sub.chosen(&q)
	for _, d := range chosen {
		delete(sub.letters, d.msg.Seq)
		d.msg.Attempt++
		sub.park(lineOf(&d.msg, penstock.Alone), &parked{msg: d.msg, failures: d.failures, holds: d.holds}, s.db.now())
	}
	return len(chosen), nil
}

// DiscardDeadLetters implements penstock.Operator.
func (s *Store) DiscardDeadLetters(ctx context.Context, q penstock.DeadLetterQuery) (int, error) {
	_, sub, err := s.enterSubscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	chosen := sub.chosen(&q)
	for _, d := range chosen {
		delete(sub.letters, d.msg.Seq)
		if d.holds {
			sub.release(d.msg.Key, d.msg.Seq, s.db.now())
		}
	}
	return len(chosen), nil
}

// chosen returns the letters that q describes, in order of Seq.
func (sub *subscription) chosen(q *penstock.DeadLetterQuery) []*letter {
	var found []*letter
	for _, d := range sub.letters {
		if d.matches(q) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b *letter) int { return cmp.Compare(a.msg.Seq, b.msg.Seq) })
	if q.Limit > 0 {
		found = found[:min(q.Limit, len(found))]
	}
	return found
}

func (d *letter) matches(q *penstock.DeadLetterQuery) bool {
	switch {
	case len(q.Seqs) > 0 && !slices.Contains(q.Seqs, d.msg.Seq),
		len(q.IDs) > 0 && !slices.Contains(q.IDs, d.msg.ID),
		q.Key != "" && q.Key != d.msg.Key,
		q.Topic != "" && q.Topic != d.msg.Topic,
		!strings.Contains(lastError(d.failures), q.Error),
		!q.DiedBefore.IsZero() && !d.at.Before(q.DiedBefore),
		!q.DiedAfter.IsZero() && !d.at.After(q.DiedAfter),
		q.AfterSeq != 0 && d.msg.Seq <= q.AfterSeq:
		return false
	}
	return true
}

// ParkedKeys implements penstock.Operator.
func (s *Store) ParkedKeys(ctx context.Context, name, subscription string, limit int) ([]penstock.ParkedKey, error) {
	_, sub, err := s.enterSubscription(ctx, name, subscription)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	var keys []penstock.ParkedKey
	for _, l := range sub.byDue() {
		if len(keys) < limit {
			keys = append(keys, sub.describe(l))
		}
	}
	return keys, nil
}

// RetryParked implements penstock.Operator.
func (s *Store) RetryParked(ctx context.Context, name, subscription string, keys ...string) (n int, err error) {
	_, sub, err := s.enterSubscription(ctx, name, subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	now := s.db.now()
	for _, l := range sub.lines {
		if len(l.holds) == 0 && now.Before(l.due) && (len(keys) == 0 || l.id.key != "" && slices.Contains(keys, l.id.key)) {
			l.due = now
			n++
		}
	}
	return n, nil
}

func (sub *subscription) describe(l *line) penstock.ParkedKey {
	k := penstock.ParkedKey{Messages: int64(len(l.msgs)), FirstSeq: l.first(), Held: len(l.holds) > 0}
	var first *parked
	if !k.Held {
		first = l.msgs[0]
		k.Retry = l.due
	} else if d := sub.letters[k.FirstSeq]; d != nil {
		k.Key, k.Attempt, k.Err, k.Since = d.msg.Key, d.msg.Attempt, lastError(d.failures), d.msg.FailedSince
		return k
	} else { // it was sent back
		first = sub.lines[lineID{seq: k.FirstSeq}].msgs[0]
	}
	k.Key, k.Attempt, k.Err, k.Since = first.msg.Key, first.msg.Attempt-1, lastError(first.failures), first.msg.FailedSince
	return k
}

func lastError(failures []penstock.Failure) string {
	return penstock.Verdict{Failures: failures}.Err()
}

// Replay copies what is to be delivered again, so nothing of the outbox has to
// be kept for it.
func (s *Store) Replay(ctx context.Context, r penstock.Replay) (int64, error) {
	o, sub, err := s.enterSubscription(ctx, r.Outbox, r.Subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	n := int64(0)
	for i, m := range o.log {
		at := o.base + int64(i)
		if (at < sub.cursor || sub.ahead[at]) && covers(r, &m) && !sub.isParked(m.Seq) && sub.letters[m.Seq] == nil {
			sub.replays = append(sub.replays, &replayed{msg: m})
			n++
		}
	}
	return n, nil
}

func covers(r penstock.Replay, m *penstock.Message) bool {
	return (r.FromSeq == 0 || m.Seq >= r.FromSeq) && (r.ToSeq == 0 || m.Seq <= r.ToSeq) &&
		(r.From.IsZero() || !m.CreatedAt.Before(r.From)) && (r.To.IsZero() || m.CreatedAt.Before(r.To))
}

func (sub *subscription) isParked(seq int64) bool {
	for _, l := range sub.lines {
		if _, found := slices.BinarySearchFunc(l.msgs, seq, bySeq); found {
			return true
		}
	}
	return false
}

// SetRetention implements penstock.Operator.
func (s *Store) SetRetention(ctx context.Context, name string, r penstock.Retention) error {
	if r.Age < 0 {
		return &penstock.FieldError{Field: "retention.age", Problem: "is negative", Hint: "use 0 for none"}
	}
	if r.Bytes < 0 {
		return &penstock.FieldError{Field: "retention.bytes", Problem: "is negative", Hint: "use 0 for none"}
	}
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	o.retention = r
	return nil
}

// DropSubscription implements penstock.Operator.
func (s *Store) DropSubscription(ctx context.Context, name, subscription string) error {
	o, sub, err := s.enterSubscription(ctx, name, subscription)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	sub.dropped = true
	delete(o.subs, subscription)
	return nil
}
