package tables

import (
	"context"
	"time"

	"github.com/penstock/penstock/driver"
)

// mostLate is how many jobs one transaction looks at for a deadline that has passed.
const mostLate = 1000

// endLate ends jobs that a claim has taken and whose deadline has passed. It excludes claims, and also ends those that come next in the group,
// without a lease: thousands of them are passed over by few claims. No rate counts those that end. It does so also if the claim's caller gives up meanwhile, or the
// connection is lost: a lease that it had ended already is not there any more.
func (q Queue) endLate(ctx context.Context, row *QueueRow, c driver.Claim, r *Round) error {
	var late []int64
	var now time.Time
	for i := range r.Page {
		p := &r.Page[i]
		if len(p.Job.Headers) == 0 || p.Job.Lease == 0 {
			continue
		}
		began := p.Job.LeaseUntil.Add(-c.Lease) // by the database's clock, some time after the claim began to look
		if isLate(p.Job.Deadline(), began) {
			p.Late = true
			late, now = append(late, p.Job.Lease), began
		}
	}
	if late == nil {
		return nil
	}
	for ended := int64(mostLate); ended == mostLate && (len(late) > 0 || ctx.Err() == nil); late = []int64{} {
		end := func(ctx context.Context, tx Tx, row *QueueRow) error {
			var held []int64
			these := row.Args(Args{"leases": late, "group": c.Group, "most": mostLate, "late": now.UTC().Format("2006-01-02T15:04:05.000000Z")})
			b := row.withoutClaims()
			q.endHeld(b, these, &held)
			if err := tx.Run(ctx, b.Counted(&ended, "expire_jobs", these)); err != nil {
				return err
			}
			b = new(Batch).Do("update {schema}.queues set expired = expired + {ended} where id = {queue}", these.With(Args{"ended": ended + int64(len(held))}))
			if r.Started && len(held) > 0 {
				b.Do(giveStartsBack, these.With(Args{"starts": len(held)}))
			}
			return tx.Finish(ctx, b)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), givingBack)
		err := q.again(ctx, func() error {
			return q.in(ctx, q.name, func(tx Tx, row *QueueRow) error { return end(ctx, tx, row) })
		})
		if cancel(); err != nil {
			return err
		}
	}
	return nil
}
