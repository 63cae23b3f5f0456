package portable

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
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

// claimed is a row that a claim has looked at, and taken if it has a lease.
type claimed struct {
	job   penstock.Job
	ts    time.Time
	fresh bool // it was never claimed before
	waits bool // for another of its key
}

// most jobs that wait for another of their key are looked at, of each range.
const most = 200_000

// ackClaim ends jobs and claims others in one round trip. Another one follows if it found jobs that nobody may have and there are
// more behind them, or leases that have ended. Of what comes behind those, a later priority, say, nothing is taken before that.
func (q queue) ackClaim(ctx context.Context, acks []int64, c penstock.Claim) (acked []int64, jobs []penstock.Job, err error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	for window := c.Jobs; ; window = min(4*window, most) {
		ask, room := c.Jobs-len(jobs), q.store.dialect().most(math.MaxInt)
		row, err := q.store.findQueue(ctx, q.name)
		if err != nil {
			return acked, nil, err
		}
		at := row.look(c.Group, q.store.opts)
		window = min(max(window, c.Jobs+at.blocked), most)
		var page []claimed
		var expired, closed, there bool
		err = q.store.send(ctx, q.name, func(b *pgx.Batch) {
			page, there = nil, false
			b.Queue(q.store.sql("lock_queue", ""), row.id, at.checked).Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&at.now, &expired, &closed}, func() error { there = true; return nil })
				return err
			})
			if len(acks) > 0 {
				acked = nil
				q.queueAck(b, row, acks, &acked)
			}
			b.Queue(q.store.queueSQL("claim", q.name, row.lifo), row.id, c.Group, ask, c.Lease.Microseconds(), c.Worker, at.priorities, at.after, at.upto, window, window == most, room).
				Query(func(rows pgx.Rows) error { return readClaimed(rows, c.Group, &page) })
		})
		if err != nil && len(jobs) > 0 { // those of another round trip have leases
			return acked, jobs, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if !there { // it was made anew
			q.store.queues.CompareAndDelete(q.name, row)
			continue
		}
		acks = nil
		for _, p := range page {
			if p.job.Lease != 0 {
				jobs = append(jobs, p.job)
				room -= len(p.job.Payload)
			}
		}
		row.saw(at, page, window, len(jobs) == c.Jobs, expired)
		if expired {
			if err := q.expire(ctx); err != nil {
				return acked, jobs, err
			}
		}
		if room <= 0 && len(jobs) < c.Jobs { // as much as one statement may return: the rest by another
			continue
		}
		if len(jobs) > 0 || closed || !expired && (len(page) < window || window == most) {
			return acked, jobs, nil
		}
	}
}

func readClaimed(rows pgx.Rows, group string, page *[]claimed) error {
	var p claimed
	var attempt *int
	var until *time.Time
	var headers []byte
	j := &p.job
	_, err := pgx.ForEachRow(rows, []any{&j.Priority, &p.ts, &j.ID, &p.fresh, &p.waits, &j.Lease, &attempt, &until, &j.CreatedAt, &j.Key, &headers, &j.Payload}, func() error {
		one := p
		if j := &one.job; j.Lease != 0 {
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
