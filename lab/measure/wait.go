package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock/admin"
)

// patience is how long a run waits for something that makes no progress.
const patience = time.Minute

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitProgress waits until done, and gives up when the count has not changed for as long as patience.
func awaitProgress(ctx context.Context, done <-chan struct{}, count func() int64, stuck func(count int64) error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last, changed := count(), time.Now()
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			if n := count(); n != last {
				last, changed = n, now
			} else if now.Sub(changed) > patience {
				return stuck(n)
			}
		}
	}
}

// awaitStatus asks for the outbox's status until done says so. It gives up when
// nothing has changed in it for as long as patience, and reports the condition.
func (r *rig) awaitStatus(ctx context.Context, what string, every time.Duration, done func(admin.SubscriptionStatus) bool) (admin.OutboxStatus, admin.SubscriptionStatus, error) {
	var last admin.SubscriptionStatus
	changed := time.Now()
	for {
		outbox, sub, err := r.status(ctx)
		if err != nil || done(sub) {
			return outbox, sub, err
		}
		if sub.Settled != last.Settled || sub.Parked != last.Parked || sub.Backlog != last.Backlog {
			last, changed = sub, time.Now()
		}
		if time.Since(changed) > patience {
			return outbox, sub, fmt.Errorf("waited %s until %s, which did not happen: backlog %d, parked %d, dead letters %d", patience, what, sub.Backlog, sub.Parked, sub.DeadLetters)
		}
		if err := sleepUntil(ctx, time.Now().Add(every)); err != nil {
			return outbox, sub, err
		}
	}
}

// awaitSettled waits until the subscription has no backlog and nothing parked.
func (r *rig) awaitSettled(ctx context.Context, every time.Duration) (admin.SubscriptionStatus, error) {
	_, sub, err := r.awaitStatus(ctx, "everything is settled", every, func(s admin.SubscriptionStatus) bool {
		return s.Backlog == 0 && s.Parked == 0
	})
	return sub, err
}

// awaitSmall has the outbox maintained until it is at most as large as floor, for half a minute at
// most, and returns its size: that shows whether it got there.
func (r *rig) awaitSmall(ctx context.Context, floor int64) (int64, error) {
	r.progress("waiting for the outbox to shrink")
	until := time.Now().Add(30 * time.Second)
	for {
		if err := r.Store.Maintain(ctx, r.outbox); err != nil {
			return 0, err
		}
		outbox, _, err := r.status(ctx)
		if err != nil || outbox.Bytes <= floor || time.Now().After(until) {
			return outbox.Bytes, err
		}
		if err := sleepUntil(ctx, time.Now().Add(200*time.Millisecond)); err != nil {
			return 0, err
		}
	}
}

// steadily calls do with 0, 1, 2 … at the given number of calls per second, until it returns false
// or an error. It keeps to the clock: a slow call does not slow the rate, unless all writers are
// busy. The calls whose numbers are equal modulo writers are made one after another.
func steadily(ctx context.Context, writers, perSecond int, do func(i int) (more bool, err error)) error {
	interval := time.Second / time.Duration(perSecond)
	start := time.Now()
	return together(ctx, writers, func(ctx context.Context, w int) error {
		for i := w; ; i += writers {
			if sleepUntil(ctx, start.Add(time.Duration(i)*interval)) != nil {
				return nil
			}
			if more, err := do(i); err != nil || !more {
				return err
			}
		}
	})
}
