package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// Names lists the outboxes, queues or subscriptions there are, by name.
func (s *Store) Names(ctx context.Context, of string) (names []string, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	if !s.db.migrated {
		return nil, penstock.ErrNotMigrated
	}
	switch of {
	case "outboxes":
		names = slices.Collect(maps.Keys(s.db.outboxes))
	case "queues":
		names = slices.Collect(maps.Keys(s.db.queues))
	case "subscriptions":
		for _, o := range s.db.outboxes {
			names = slices.AppendSeq(names, maps.Keys(o.subs))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Status implements driver.Store.
func (s *Store) Status(ctx context.Context) ([]admin.OutboxStatus, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	if !s.db.migrated {
		return nil, penstock.ErrNotMigrated
	}
	all := []admin.OutboxStatus{}
	for name, o := range s.db.outboxes {
		st := admin.OutboxStatus{Outbox: name, Bytes: o.size(), Retention: o.retention}
		for subName, sub := range o.subs {
			st.Subscriptions = append(st.Subscriptions, sub.status(subName, o, s.db.now()))
		}
		slices.SortFunc(st.Subscriptions, func(a, b admin.SubscriptionStatus) int { return cmp.Compare(a.Subscription, b.Subscription) })
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b admin.OutboxStatus) int { return cmp.Compare(a.Outbox, b.Outbox) })
	return all, nil
}

func (sub *subscription) status(name string, o *outbox, now time.Time) admin.SubscriptionStatus {
	st := admin.SubscriptionStatus{
		Subscription: name,
		Settled:      sub.settled,
		DeadLetters:  int64(len(sub.deadLetters)),
		ParkedKeys:   int64(len(sub.parked)),
		Replaying:    len(sub.replays) > 0,
		Epoch:        sub.epoch,
	}
	for at := sub.cursor; at < o.end(); at++ {
		if !sub.ahead[at] {
			st.Backlog++
			st.OldestAge = max(st.OldestAge, now.Sub(o.log[at-o.base].CreatedAt))
		}
	}
	for _, l := range sub.parked {
		st.Parked += int64(len(l.msgs))
		if len(l.msgs) > 0 {
			st.ParkedAge = max(st.ParkedAge, now.Sub(l.msgs[0].msg.CreatedAt))
		}
		if len(l.holds) > 0 {
			st.HeldKeys++
		}
	}
	for _, r := range sub.recent {
		if now.Sub(r.at) < time.Minute {
			st.Rate += float64(r.n) / 60
		}
	}
	if sub.holder != "" && now.Before(sub.until) {
		st.Holder, st.HolderSince, st.LeaseUntil = sub.holder, sub.since, sub.until
		if sub.sink.epoch == sub.epoch && !sub.sink.down.IsZero() {
			st.SinkDown, st.SinkError = sub.sink.down, sub.sink.why
		}
	}
	return st
}
