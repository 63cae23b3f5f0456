package portable

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// Claim implements penstock.Queue.
func (q queue) Claim(ctx context.Context, c penstock.Claim) ([]penstock.Job, error) {
	_, jobs, err := q.ackClaim(ctx, nil, c)
	return jobs, err
}

// AckClaim implements penstock.AckClaimer.
func (q queue) AckClaim(ctx context.Context, acks []int64, c penstock.Claim) (acked []int64, jobs []penstock.Job, err error) {
	return q.ackClaim(ctx, acks, c)
}

// ackClaim ends jobs and claims others, in one round trip if it can.
func (q queue) ackClaim(ctx context.Context, acks []int64, c penstock.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	for {
		row, err := q.store.findQueue(ctx, q.name)
		if err != nil {
			return nil, nil, err
		}
		jobs, err = row.Claim(c, q.store.looks(),
			func(r *tables.Round) error { return q.round(ctx, row, c, r, &acks, &acked) }, func() error { return q.expire(ctx) })
		if errors.Is(err, tables.ErrAnew) {
			if q.store.queues.CompareAndDelete(q.name, row); len(jobs) == 0 {
				continue
			}
			err = nil
		}
		return acked, jobs, err
	}
}

// looks is what of the options a claim needs.
func (s *Store) looks() tables.Options {
	return tables.Options{Margin: s.opts.Margin, Sweep: s.opts.Sweep, LookAgain: s.opts.LookAgain, Room: s.dialect().resultBytes}
}

func columns(ranges []tables.Range) (priorities []int16, after, upto []time.Time) {
	for _, r := range ranges {
		priorities, after, upto = append(priorities, r.Priority), append(after, r.After), append(upto, r.UpTo)
	}
	return priorities, after, upto
}

// round is a round trip of a claim; the first one ends jobs, too.
func (q queue) round(ctx context.Context, row *queueRow, c penstock.Claim, r *tables.Round, acks, acked *[]int64) error {
	priorities, after, upto := columns(r.Ranges)
	err := q.store.send(ctx, q.name, func(b *pgx.Batch) {
		r.Page, r.There = nil, false
		b.Queue(q.store.sql("lock_queue", ""), row.id, r.Checked).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&r.Now, &r.Expired, &r.Closed}, func() error { r.There = true; return nil })
			return err
		})
		if len(*acks) > 0 {
			*acked = nil
			q.queueAck(b, row, *acks, acked)
		}
		b.Queue(q.store.queueSQL("claim", q.name, row.LIFO()), row.id, c.Group, r.Jobs, c.Lease.Microseconds(), c.Worker, priorities, after, upto, r.Window, r.Last, r.Room).
			Query(func(rows pgx.Rows) error { return readClaimed(rows, c.Group, &r.Page) })
	})
	if err == nil && r.There {
		*acks = nil
	}
	return err
}

func readClaimed(rows pgx.Rows, group string, page *[]tables.Claimed) error {
	var p tables.Claimed
	var attempt *int
	var until *time.Time
	var headers []byte
	j := &p.Job
	_, err := pgx.ForEachRow(rows, []any{&j.Priority, &p.TS, &j.ID, &p.Fresh, &p.Waits, &j.Lease, &attempt, &until, &j.CreatedAt, &j.Key, &headers, &j.Payload}, func() error {
		one := p
		if j := &one.Job; j.Lease != 0 {
			j.Group, j.Attempt, j.LeaseUntil, j.CreatedAt = group, *attempt, until.UTC(), j.CreatedAt.UTC()
			if len(headers) > 0 {
				if err := json.Unmarshal(headers, &j.Headers); err != nil {
					return err
				}
			}
		}
		*page = append(*page, one)
		j.Payload = nil
		return nil
	})
	return err
}
