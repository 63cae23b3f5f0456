package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
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

// ParkedKeys implements driver.Operator.
func (s *Store) ParkedKeys(ctx context.Context, name, subscription string, limit int) ([]admin.ParkedKey, error) {
	_, sub, err := s.enterSubscription(ctx, name, subscription)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	var keys []admin.ParkedKey
	for _, l := range sub.byDue() {
		if len(keys) < limit {
			keys = append(keys, sub.describe(l))
		}
	}
	return keys, nil
}

// RetryParked implements driver.Operator.
func (s *Store) RetryParked(ctx context.Context, name, subscription string, keys ...string) (n int, err error) {
	_, sub, err := s.enterSubscription(ctx, name, subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	now := s.db.now()
	for _, l := range sub.parked {
		if len(l.holds) == 0 && now.Before(l.due) && (len(keys) == 0 || l.id.key != "" && slices.Contains(keys, l.id.key)) {
			l.due = now
			n++
		}
	}
	return n, nil
}

func (sub *subscription) describe(l *parkedKey) admin.ParkedKey {
	k := admin.ParkedKey{Messages: int64(len(l.msgs)), FirstSeq: l.first(), Held: len(l.holds) > 0}
	var first *parked
	if !k.Held {
		first = l.msgs[0]
		k.Retry = l.due
	} else if d := sub.deadLetters[k.FirstSeq]; d != nil {
		k.Key, k.Attempt, k.Err, k.Since = d.msg.Key, d.msg.Attempt, lastError(d.failures), d.msg.FailedSince
		return k
	} else { // it was sent back
		first = sub.parked[parkedID{seq: k.FirstSeq}].msgs[0]
	}
	k.Key, k.Attempt, k.Err, k.Since = first.msg.Key, first.msg.Attempt-1, lastError(first.failures), first.msg.FailedSince
	return k
}

func lastError(failures []penstock.Failure) string {
	return driver.Verdict{Failures: failures}.Err()
}

// SetRetention implements driver.Operator.
func (s *Store) SetRetention(ctx context.Context, name string, r admin.Retention) error {
	if err := r.Validate(); err != nil {
		return err
	}
	o, err := s.enterOutbox(ctx, name)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	o.retention = r
	return nil
}

// DropSubscription implements driver.Operator.
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
