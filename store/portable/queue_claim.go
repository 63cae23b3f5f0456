package portable

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

func (s onTables) Looks() tables.Options {
	return tables.Options{Margin: s.opts.Margin, Sweep: s.opts.Sweep, LookAgain: s.opts.LookAgain, Ended: 250 * time.Millisecond, Room: s.dialect().resultBytes, Heads: true, Turns: !s.dialect().takesTurns, Returns: true}
}

func columns(ranges []tables.Range) (priorities []int16, after, upto []time.Time) {
	for _, r := range ranges {
		priorities, after, upto = append(priorities, r.Priority), append(after, r.After), append(upto, r.UpTo)
	}
	return priorities, after, upto
}

// turns of each queue, as make_turns makes them: at most this many claims run side by side.
const turns = 64

func (s onTables) Round(ctx context.Context, row *queueRow, c driver.Claim, r *tables.Round, lost []int64, first *tables.Batch) (numbers []int64, err error) {
	priorities, after, upto := columns(r.Ranges)
	r.Page, r.There = nil, false
	b, lock, turn := new(tables.Batch).Do("by_plan", nil), "lock_turn", s.turn()
	if r.Turned {
		turn = turnOf(c.Group)
	}
	if r.Alone {
		lock = "lock_queue"
	}
	b.Row(&r.There, lock, row.Args(tables.Args{"checks": r.Checks, "checked": r.Checked, "turn": turn}), &r.Now, &r.Expired, &r.Closed, &r.Limited, &r.HasPolicies)
	if r.Alone && r.Policies && !s.dialect().takesTurns { // others may know already that the queue as a whole has no limit any more
		b.Lock("hold_turn", row.Args(tables.Args{"turn": turnOf(c.Group)}))
	}
	if len(lost) > 0 {
		b.Do("delete from {schema}.leases where queue_id = {queue} and {claim in lost}", row.Args(tables.Args{"lost": lost}))
	}
	*b = append(*b, *first...)
	if r.Policies {
		r.RoomOf(b, row, c.Group)
	}
	sent, claim := s.pgBatch(b), rand.Int64N(1<<53-1<<30)+1 // any reader of JSON also takes the leases' numbers
	sent.Queue(s.claimSQL(row, r), row.ID, c.Group, r.Jobs, c.Lease.Microseconds(), c.Worker, priorities, after, upto, r.Window, r.Last, r.Room, r.Keys, claim, r.Checked, r.Tried, r.Alone, r.Spare).
		Query(func(rows pgx.Rows) error { return readClaimed(rows, c.Group, &r.Page) })
	leases, last := make([]int64, r.Jobs+r.Spare), &tables.Batch{} // each that it may have made
	for i := range leases {
		leases[i] = claim + 1 + int64(i)
	}
	if !s.dialect().takesTurns {
		last.Rows(tables.Each(r.Withdraw), "withdraw", row.Args(tables.Args{"leases": leases, "most": r.Jobs}))
	}
	if r.Policies && (r.Turned || r.Alone) {
		last.Do("note_starts", row.Args(tables.Args{"group": c.Group, "leases": leases}))
		last.Do("forget_start", row.Args(tables.Args{"group": c.Group, "whole": false}))
		last.Do("forget_start", row.Args(tables.Args{"group": "", "whole": true}))
	}
	sent.QueuedQueries = append(sent.QueuedQueries, s.pgBatch(last).QueuedQueries...)
	err = s.explain(s.guard.Newer(ctx, s.send(ctx, sent)))
	r.Closed = r.Closed || r.Policies && r.RoomInGroup == 0
	return []int64{claim}, err
}

// claimSQL is the statement of a round. The limits of groups are a part of its text, so that queues without policies pay nothing for them.
func (s *Store) claimSQL(row *queueRow, r *tables.Round) string {
	known, room := "0", ""
	switch {
	case r.Policies && (r.Turned || r.Alone):
		known, room = "3", ", {room}"
	case r.Policies:
		known, room = "3", ", {room_in_turn}"
	}
	args := row.Args(tables.Args{"queue": tables.SQL("$1"), "group": tables.SQL("$2"), "policies": tables.SQL(known), "checked": tables.SQL("$14")})
	text, _ := s.rendered(strings.Replace(s.text("claim"), "{room_of_group}", room, 1), args)
	s.planned.Store(text, nil)
	return text
}

// turnOf is the turn of all claims of a group that is limited.
func turnOf(group string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(group))
	return int(h.Sum32() % turns)
}

func (s onTables) LimitedGroups(row *queueRow) tables.Args {
	return tables.WithLimits(row, "coalesce(r.n, 0)", func(text string, with tables.Args) string {
		text, _ = s.rendered(text, with)
		return text
	})
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
