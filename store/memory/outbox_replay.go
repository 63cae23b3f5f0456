package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Replay copies what is to be delivered again, so nothing of the outbox has to
// be kept for it.
func (s *Store) Replay(ctx context.Context, r admin.Replay) (int64, error) {
	o, sub, err := s.enterSubscription(ctx, r.Outbox, r.Subscription)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	if slices.ContainsFunc(sub.replays, func(p *replayed) bool { return !p.settled && covers(r, &p.msg) }) {
		return 0, underWay(r)
	}
	n := int64(0)
	for i, m := range o.log {
		at := o.base + int64(i)
		if (at < sub.cursor || sub.ahead[at]) && covers(r, &m) && !sub.isParked(m.Seq) && sub.deadLetters[m.Seq] == nil {
			sub.replays = append(sub.replays, &replayed{msg: m})
			n++
		}
	}
	return n, nil
}

func underWay(r admin.Replay) error {
	return penstock.WithHint(fmt.Errorf("%w: subscription %q of outbox %q", penstock.ErrReplaying, r.Subscription, r.Outbox), "wait until it is delivered, or replay a range beside it; penstock status shows when it is done")
}

func covers(r admin.Replay, m *penstock.Message) bool {
	return (r.FromSeq == 0 || m.Seq >= r.FromSeq) && (r.ToSeq == 0 || m.Seq <= r.ToSeq) &&
		(r.From.IsZero() || !m.CreatedAt.Before(r.From)) && (r.To.IsZero() || m.CreatedAt.Before(r.To))
}

func (sub *subscription) isParked(seq int64) bool {
	for _, l := range sub.parked {
		if _, found := slices.BinarySearchFunc(l.msgs, seq, bySeq); found {
			return true
		}
	}
	return false
}
