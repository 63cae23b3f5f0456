package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// DeadLetters implements driver.Operator.
func (s *Store) DeadLetters(ctx context.Context, q admin.DeadLetterQuery) ([]admin.DeadLetter, error) {
	_, sub, err := s.enterSubscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	var found []admin.DeadLetter
	for _, d := range sub.chosen(&q) {
		found = append(found, admin.DeadLetter{Message: clone(d.msg), Failures: slices.Clone(d.failures), At: d.at, Held: d.holds})
	}
	return found, nil
}

// RetryDeadLetters parks the chosen ones out of order, due at once.
func (s *Store) RetryDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	_, sub, err := s.enterSubscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	chosen := sub.chosen(&q)
	for _, d := range chosen {
		delete(sub.deadLetters, d.msg.Seq)
		d.msg.Attempt++
		sub.park(parkedIDOf(&d.msg, driver.OutOfOrder), &parked{msg: d.msg, failures: d.failures, holds: d.holds}, s.db.now())
	}
	return len(chosen), nil
}

// DiscardDeadLetters implements driver.Operator.
func (s *Store) DiscardDeadLetters(ctx context.Context, q admin.DeadLetterQuery) (int, error) {
	_, sub, err := s.enterSubscription(ctx, q.Outbox, q.Subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	chosen := sub.chosen(&q)
	for _, d := range chosen {
		delete(sub.deadLetters, d.msg.Seq)
		if d.holds {
			sub.release(d.msg.Key, d.msg.Seq, s.db.now())
		}
	}
	return len(chosen), nil
}

// chosen returns the dead letters that q describes, in order of Seq.
func (sub *subscription) chosen(q *admin.DeadLetterQuery) []*deadLetter {
	var found []*deadLetter
	for _, d := range sub.deadLetters {
		if d.matches(q) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b *deadLetter) int { return cmp.Compare(a.msg.Seq, b.msg.Seq) })
	if q.Limit > 0 {
		found = found[:min(q.Limit, len(found))]
	}
	return found
}

func (d *deadLetter) matches(q *admin.DeadLetterQuery) bool {
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
