package tables

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/retry"
)

// Queue is the part of a driver.Queue that is the same in every dialect.
type Queue struct {
	*Queues
	name string
}

// WorkedQueue is the part of a dialect's queue that is the same in all.
type WorkedQueue interface {
	driver.Queue
	driver.Releaser
	driver.AckClaimer
	driver.GroupFinder
	// Name is for the log of its workers.
	Name() string
	driver.GroupHolder
	driver.RoleJudge
}

var _ WorkedQueue = Queue{}

// Name implements WorkedQueue.
func (q Queue) Name() string { return q.name }

// RefusesRole implements driver.RoleJudge.
func (q Queue) RefusesRole(err error) bool { return pgerror.IsForbidden(err) }

// Enqueue implements driver.Queue.
func (q Queue) Enqueue(ctx context.Context, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if _, err := q.find(ctx, q.name); err != nil || len(jobs) == 0 {
		return nil, err
	}
	return q.on.Enqueue(ctx, q.name, jobs...)
}

// Claim implements driver.Queue.
func (q Queue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	_, jobs, err := q.AckClaim(ctx, nil, c)
	return jobs, err
}

// AckClaim implements driver.AckClaimer: it ends jobs and claims others, in one round trip where the dialect can.
func (q Queue) AckClaim(ctx context.Context, leases []int64, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	return q.join(&call{ctx: ctx, leases: leases, claim: c})
}

// make is one call, or several that go together.
func (q Queue) make(ctx context.Context, leases []int64, c driver.Claim) (acked []int64, jobs []penstock.Job, err error) {
	ends := &acks{leases: leases}
	if c.Jobs == 0 {
		err = q.again(ctx, func() error {
			return ends.note(q.send(ctx, q.name, func(b *Batch, row *QueueRow) {
				if q.on.Looks().Returns {
					b.Do("by_plan", nil)
				}
				ends.in(b, q, row)
			}))
		})
		return ends.held, nil, err
	}
	for {
		row, err := q.find(ctx, q.name)
		if err != nil {
			return nil, nil, err
		}
		jobs, err = row.Claim(c, q.on.Looks(), func(r *Round) error {
			if err := q.round(ctx, row, c, r, ends); err != nil {
				return q.orNoQueue(err, q.name)
			}
			if err := q.endLate(ctx, row, c, r); err != nil && len(r.taken(nil)) == 0 { // the others that were taken have leases
				return err
			}
			return nil
		}, func(since time.Time) error { return q.expire(ctx, since) })
		if errors.Is(err, ErrAnew) {
			if q.forget(row); len(jobs) == 0 {
				continue
			}
			err = nil
		}
		return ends.held, jobs, err
	}
}

// Extend implements driver.Queue.
func (q Queue) Extend(ctx context.Context, lease time.Duration, leases ...int64) (held []int64, err error) {
	if err := driver.ValidateLease(lease); err != nil {
		return nil, err
	}
	err = q.again(ctx, func() error {
		return q.send(ctx, q.name, func(b *Batch, row *QueueRow) {
			held = nil
			these := row.Args(Args{"leases": leases, "micros": lease.Microseconds()})
			b.Rows(All(&held), "hold_to_extend", these)
			b.Do("extend_leases", these)
		})
	})
	return held, err
}

// Ack implements driver.Queue.
func (q Queue) Ack(ctx context.Context, leases ...int64) (held []int64, err error) {
	held, _, err = q.join(&call{ctx: ctx, leases: leases})
	return held, err
}

// settle ends the leases of claimed jobs, those that the statement finds, as judge says. No other call ends them
// meanwhile.
func (q Queue) settle(ctx context.Context, statement string, args Args, judge func(j *Tried)) (held []int64, err error) {
	var unsure []int64 // which an attempt has ended, if it happened
	one := func(tx Tx, row *QueueRow) (err error) {
		held, err = q.end(ctx, tx, row, statement, args, judge, unsure)
		return err
	}
	err = q.again(ctx, func() error {
		err := q.in(ctx, q.name, one)
		if retry.Lost(err) && len(held) > 0 {
			unsure = held
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// end is settle in a transaction, of which this is the last part.
func (q Queue) end(ctx context.Context, tx Tx, row *QueueRow, statement string, args Args, judge func(j *Tried), unsure []int64) (held []int64, err error) {
	var seqs []int64
	var jobs []*Tried
	if err := tx.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		j := &Tried{}
		var since *time.Time
		var now time.Time
		var failures, headers []byte
		if err := scan(&j.Lease, &j.Seq, &j.Attempt, &j.Worker, &j.History.Attempt, &since, &failures, &j.Limit, &headers, &now); err != nil {
			return err
		}
		own := penstock.Job{Headers: Headers(headers)}
		j.Limit = cmp.Or(own.MaxAttempts(), j.Limit)
		if end := own.Deadline(); !end.IsZero() {
			left := end.Sub(now)
			j.Left = &left
		}
		j.History.Since = timeOf(since)
		jobs, seqs = append(jobs, j), append(seqs, j.Seq)
		j.History.Parse(failures)
		return nil
	}, statement, row.Args(args))); err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		b := &Batch{}
		happened := ended(b, unsure)
		err := tx.Run(ctx, b)
		return slices.Sorted(maps.Keys(happened)), err
	}
	for _, j := range jobs {
		judge(j)
		held = append(held, j.Lease)
	}
	b := &Batch{}
	these := row.Args(Args{"leases": held, "seqs": seqs})
	if statement == "read_expired" {
		b.Do("give_up", these)
	}
	b.Do("end_tries", these)
	q.on.Judge(b, row, jobs)
	b.Do("end_leases", these)
	return held, tx.Finish(ctx, b)
}

// one settles the job of a lease.
func (q Queue) one(ctx context.Context, lease int64, judge func(j *Tried)) error {
	held, err := q.settle(ctx, "read_leases", Args{"leases": []int64{lease}}, judge)
	if err == nil && len(held) == 0 {
		err = LeaseLost(q.name, lease)
	}
	return err
}

// Release implements driver.Releaser.
func (q Queue) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return q.settle(ctx, "read_leases", Args{"leases": leases}, func(j *Tried) { j.Back(after) })
}

// HoldGroup implements driver.GroupHolder.
func (q Queue) HoldGroup(ctx context.Context, group string, d time.Duration, reason string) error {
	return q.Queues.HoldGroup(ctx, q.name, group, d, reason)
}

// Retry implements driver.Queue.
func (q Queue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error) {
	err = q.one(ctx, lease, func(j *Tried) {
		j.Failed(reason, max(after, -1))
		dead = j.Dead
	})
	return dead && err == nil, err
}

// DeadLetter implements driver.Queue.
func (q Queue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	return q.one(ctx, lease, func(j *Tried) { j.Failed(reason, Never) })
}

// mostBack is how many leases that have ended one transaction ends, and how many jobs that are due a Waker wakes.
const mostBack = 500

// expire ends leases whose time is over, which counts as a failure of their jobs. Of those that end before since it is known that there are none.
func (q Queue) expire(ctx context.Context, since time.Time) error {
	_, wakes := q.on.(Waker)
	for more := true; more; {
		var held []int64
		var err error
		if wakes {
			err = q.in(ctx, q.name, func(tx Tx, row *QueueRow) error {
				more, err = q.Back(ctx, tx, row)
				return err
			})
		} else {
			held, err = q.settle(ctx, "read_expired", Args{"most": mostBack, "since": since.UTC()}, (*Tried).Expired)
			more = len(held) == mostBack
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Back is expire in a transaction of a Waker, which also wakes jobs that are due. There may be more.
func (q Queue) Back(ctx context.Context, tx Tx, row *QueueRow) (more bool, err error) {
	held, err := q.end(ctx, tx, row, "read_expired", Args{"most": mostBack, "since": time.Time{}}, (*Tried).Expired, nil)
	if err != nil {
		return false, err
	}
	more, err = q.on.(Waker).Wake(ctx, tx, row)
	return more || len(held) == mostBack, err
}

// Maintain implements driver.Queue.
func (q Queue) Maintain(ctx context.Context) error {
	row, err := q.find(ctx, q.name)
	if err != nil {
		return err
	}
	var there, expired, scheduled, forgettable, policies bool
	var now time.Time
	since := row.over.Since(q.on.Looks().Sweep)
	these := row.Args(Args{"by": time.Now().UTC(), "since": since.UTC()})
	b := new(Batch).Row(&there, "housekeeping", these, &now, &expired, &scheduled, &forgettable, &policies)
	q.attempts.sweep(b)
	if err := q.on.Run(ctx, b); err != nil {
		return err
	}
	if !there {
		q.forget(row)
		_, err = q.find(ctx, q.name)
		return err
	}
	if expired {
		err = q.expire(ctx, since.Time)
	}
	if err == nil && scheduled {
		err = q.runSchedules(ctx)
	}
	if err == nil && since.IsZero() {
		err = q.correctSchedules(ctx, row)
	}
	if err == nil && forgettable {
		err = q.forgetDedup(ctx, these)
	}
	if err == nil && policies && row.forgets() {
		err = q.forgetPolicies(ctx, row)
	}
	if err == nil {
		since.Found(false, now.Add(-endedMargin))
	}
	return err
}

// forgetDedup forgets dedup keys whose time is over, in transactions that are short where the dialect asks for that.
func (q Queue) forgetDedup(ctx context.Context, these Args) error {
	const most = 10_000
	for n := int64(most); n == most; {
		if err := q.send(ctx, q.name, func(b *Batch, _ *QueueRow) {
			b.Counted(&n, "forget_dedup", these.With(Args{"most": most}))
		}); err != nil {
			return err
		}
	}
	return nil
}

// ReadyGroups implements driver.GroupFinder. Jobs whose leases have ended are back first.
func (q Queue) ReadyGroups(ctx context.Context, groups []string, behind string, most int) (found []string, err error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	row, err := q.find(ctx, q.name)
	if err != nil {
		return nil, err
	}
	args := row.Args(Args{"all": len(groups) == 0, "groups": groups, "behind": behind, "most": most, "weight": SQL("1"), "running_groups": SQL(""), "may_start": SQL("1 = 1")})
	found, limited, err := q.readyGroups(ctx, args)
	if len(found) > 0 {
		row.limited(limited)
	}
	if err == nil && limited {
		found, _, err = q.readyGroups(ctx, args.With(q.on.LimitedGroups(row)))
	}
	return found, err
}

// readyGroups are groups with jobs. limited: the queue has policies, which this may not have asked for.
func (q Queue) readyGroups(ctx context.Context, args Args) (found []string, limited bool, err error) {
	fill := func(b *Batch) {
		found = nil
		b.Do("by_index", nil)
		b.Rows(func(scan Scan) error {
			var group string
			var weight int
			err := scan(&group, &weight, &limited)
			for range weight {
				found = append(found, group)
			}
			return err
		}, "ready_groups", args)
	}
	if q.on.Looks().Ready { // only reads, so that it does not wait for the lock
		b := &Batch{}
		fill(b)
		err = q.on.Run(ctx, b)
	} else {
		err = q.on.Send(ctx, fill)
	}
	return found, limited, q.orNoQueue(err, q.name)
}
