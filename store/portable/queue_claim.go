package portable

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

// Looks implements tables.QueueDB.
func (s onTables) Looks() tables.Options {
	return tables.Options{Margin: s.opts.Margin, Sweep: s.opts.Sweep, LookAgain: s.opts.LookAgain, Room: s.dialect().resultBytes, Heads: true}
}

func columns(ranges []tables.Range) (priorities []int16, after, upto []time.Time) {
	for _, r := range ranges {
		priorities, after, upto = append(priorities, r.Priority), append(after, r.After), append(upto, r.UpTo)
	}
	return priorities, after, upto
}

// turns of each queue, as make_turns makes them: at most this many claims run side by side.
const turns = 64

// Round implements tables.QueueDB.
func (s onTables) Round(ctx context.Context, row *queueRow, c driver.Claim, r *tables.Round, lost []int64, first *tables.Batch) (numbers []int64, err error) {
	priorities, after, upto := columns(r.Ranges)
	r.Page, r.There = nil, false
	b, turn := &tables.Batch{}, "lock_turn"
	if r.Alone {
		turn = "lock_queue"
	}
	b.Row(&r.There, turn, row.Args(tables.Args{"checked": r.Checked, "turn": s.turn()}), &r.Now, &r.Expired, &r.Closed, &r.Limited)
	if len(lost) > 0 {
		b.Do("delete from {schema}.leases where queue_id = {queue} and {claim in lost}", row.Args(tables.Args{"lost": lost}))
	}
	*b = append(*b, *first...)
	sent, claim := s.pgBatch(b), rand.Int64N(1<<53-1<<30)+1 // any reader of JSON also takes the leases' numbers
	sent.Queue(s.queueSQL("claim", row), row.ID, c.Group, r.Jobs, c.Lease.Microseconds(), c.Worker, priorities, after, upto, r.Window, r.Last, r.Room, r.Keys, claim, r.Checked, r.Tried, r.Alone, r.Spare).
		Query(func(rows pgx.Rows) error { return readClaimed(rows, c.Group, &r.Page) })
	if !s.dialect().takesTurns {
		leases, last := make([]int64, r.Jobs+r.Spare), &tables.Batch{} // each that it may have made
		for i := range leases {
			leases[i] = claim + 1 + int64(i)
		}
		last.Rows(tables.Each(r.Withdraw), "withdraw", row.Args(tables.Args{"leases": leases, "most": r.Jobs}))
		sent.QueuedQueries = append(sent.QueuedQueries, s.pgBatch(last).QueuedQueries...)
	}
	return []int64{claim}, s.explain(s.migrated(ctx, s.send(ctx, sent)))
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
			j.Group, j.Attempt, j.LeaseUntil, j.CreatedAt, j.Headers = group, *attempt, until.UTC(), j.CreatedAt.UTC(), tables.Headers(headers)
		}
		*page = append(*page, one)
		j.Payload = nil
		return nil
	})
	return err
}
