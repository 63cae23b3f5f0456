package tables

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
)

// unanswered are claims whose answers were lost: the worker does not know which jobs were claimed. Their numbers are given back again later. The server may
// have been slow, and claim the jobs only then.
type unanswered struct {
	mu     sync.Mutex
	claims []lostClaim
}

type lostClaim struct {
	number       int64
	since, again time.Time
}

// soon is when the number of a lost claim is given back for the second time. The interval doubles until it is late.
const soon = 50 * time.Millisecond

// take hands over the claims that are due. note gets them back if their round trip failed, keep if it did not.
func (u *unanswered) take() (due []lostClaim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.claims = slices.DeleteFunc(u.claims, func(c lostClaim) bool {
		if now.Before(c.again) {
			return false
		}
		due = append(due, c)
		return true
	})
	return due
}

func (u *unanswered) note(claims ...lostClaim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.claims = append(u.claims, claims...)
}

func (u *unanswered) keep(claims []lostClaim) {
	now := time.Now()
	for _, c := range claims {
		if age := now.Sub(c.since); age < late {
			c.again = now.Add(age + soon)
			u.note(c)
		}
	}
}

// again runs a statement that claims, extends or ends leases, again if the connection is lost. An attempt that is under way then has the leases locked, and one that comes
// late finds none: a lease's number never comes again.
func (s *Queues) again(ctx context.Context, fn func() error) error {
	return s.retries.Once(ctx, func(int64) error { return fn() }, func(context.Context, int64) (bool, error) { return false, nil })
}

// ended returns which leases were ended by an attempt whose answer was lost, after it was seen that none is there any more: had it not happened, there would be. But
// for those that ended otherwise. Their time was over, or their jobs were cancelled. The call that did so has left their numbers in attempts, negative, as of
// attempts that were given up. That is rare. So the frequent case, ending jobs that are done, leaves no rows to delete.
func ended(b *Batch, leases []int64) map[int64]bool {
	left := map[int64]bool{}
	givenUp := make([]int64, len(leases))
	for i, lease := range leases {
		left[lease], givenUp[i] = true, -lease
	}
	if len(leases) > 0 {
		b.Rows(Each(func(n int64) { delete(left, -n) }), "select attempt from {schema}.attempts where {attempt in over}", Args{"over": givenUp})
	}
	return left
}

// acks are leases whose jobs end.
type acks struct {
	leases []int64
	held   []int64
	lost   bool // the answer to an attempt was
	ended  map[int64]bool
}

// in has jobs end. Their leases are locked first: another call that ends one waits, and finds none.
func (a *acks) in(b *Batch, q Queue, row *QueueRow) {
	a.held, a.ended = nil, nil
	q.endHeld(b, row.Args(Args{"leases": a.leases}), &a.held)
	if a.lost {
		a.ended = ended(b, a.leases)
	}
}

// endHeld has the jobs end whose leases are there.
func (q Queue) endHeld(b *Batch, these Args, held *[]int64) {
	if q.on.Looks().Returns {
		b.Rows(All(held), "end_jobs", these)
		return
	}
	b.Rows(All(held), "hold_leases", these).Do("end_jobs", these)
}

// note has the error of an attempt.
func (a *acks) note(err error) error {
	a.lost = a.lost || retry.Lost(err)
	if len(a.held) == 0 {
		a.held = slices.Collect(maps.Keys(a.ended))
	}
	slices.Sort(a.held)
	return err
}

// round is a round trip of a claim, which also ends jobs if it is the first. If its answer is lost, the jobs that it claimed do not stay leased until the leases
// end. The next one of the queue gives them back, by their numbers, and is tried at once. Later ones give them back again, in case the server was late.
func (q Queue) round(ctx context.Context, row *QueueRow, c driver.Claim, r *Round, ends *acks) error {
	err := q.again(ctx, func() error {
		first, lost := &Batch{}, row.lost.take()
		var givenBack []int64
		for _, c := range lost {
			givenBack = append(givenBack, c.number)
		}
		if len(ends.leases) > 0 {
			ends.in(first, q, row)
		}
		numbers, err := q.on.Round(ctx, row, c, r, givenBack, first)
		if err == nil {
			row.lost.keep(lost)
		} else {
			row.lost.note(lost...)
		}
		if retry.Lost(err) || err != nil && ctx.Err() != nil {
			for _, number := range numbers {
				row.lost.note(lostClaim{number: number, since: time.Now()})
			}
		}
		return ends.note(err)
	})
	if err == nil && r.There {
		ends.leases = nil
	}
	return err
}
