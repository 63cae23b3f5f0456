package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// Looks implements tables.QueueDB.
func (s onTables) Looks() tables.Options {
	return tables.Options{Margin: s.opts.Margin, Sweep: s.opts.Sweep, LookAgain: s.opts.LookAgain}
}

// Round implements tables.QueueDB.
func (s onTables) Round(ctx context.Context, row *queueRow, c penstock.Claim, r *tables.Round, acks, acked *[]int64) error {
	err := s.tx(ctx, func(t *tx) error { return s.round(ctx, t, row, c, r, *acks, acked) })
	if err == nil && r.There {
		*acks = nil
	}
	return err
}

// candidate is a row of a claim's page.
type candidate struct {
	tables.Claimed
	attempts int
}

// round is what a claim asks, and takes, in a transaction; the first one ends jobs, too.
func (s onTables) round(ctx context.Context, t *tx, row *queueRow, c penstock.Claim, r *tables.Round, acks []int64, acked *[]int64) error {
	r.Page, r.There, r.Whole = nil, false, true
	var paused bool
	var most, running int
	b := &batch{}
	b.read(func(*sql.Rows) error { return nil }, s.queueSQL("lock_queue", row, nil))
	b.read(func(rows *sql.Rows) error {
		r.There = true
		return rows.Scan(&r.Now, &r.Expired, &paused, &most, &running)
	}, s.queueSQL("queue_state", row, words{"checked": at(r.Checked)}))
	if len(acks) > 0 {
		ends := &tables.Batch{}
		tables.AckIn(ends, row, acks, acked)
		for _, st := range *ends {
			b.put(s.Store, st)
		}
	}
	var ranges strings.Builder
	for i, in := range r.Ranges {
		if i > 0 {
			ranges.WriteString(" or ")
		}
		fmt.Fprintf(&ranges, "t.place = %s%d and t.ts > %s and t.ts <= %s", row.Args(nil)["sign"], in.Priority, at(in.After), at(in.UpTo))
	}
	var fresh, tried []candidate
	b.read(func(rows *sql.Rows) error {
		n := candidate{Claimed: tables.Claimed{Fresh: true}}
		err := rows.Scan(&n.Job.Priority, &n.TS, &n.Job.ID, &n.Waits)
		fresh = append(fresh, n)
		return err
	}, s.queueSQL("page_new", row, words{"ranges": strings.ReplaceAll(ranges.String(), "--", ""), "window": r.Window}), []byte(c.Group))
	b.read(func(rows *sql.Rows) error {
		var n candidate
		err := rows.Scan(&n.Job.Priority, &n.TS, &n.Job.ID, &n.Waits, &n.attempts)
		tried = append(tried, n)
		return err
	}, s.queueSQL("page_tried", row, words{"window": r.Window}), []byte(c.Group))
	if err := t.run(ctx, b); err != nil {
		return err
	}
	room := r.Jobs
	if r.Closed = paused || most > 0 && running >= most; r.Closed {
		room = 0
	} else if most > 0 {
		room = min(room, most-running)
	}
	page := choose(row, r, fresh, tried, room)
	b = &batch{}
	var taken strings.Builder
	var leases []int64
	places := map[int64]int{}
	for i, p := range page {
		if lease := p.Job.Lease; lease != 0 {
			fmt.Fprintf(&taken, ",[%d,%d,%d]", lease, p.Job.ID, p.attempts+1)
			leases = append(leases, lease)
			places[p.Job.ID] = i
		}
		r.Page = append(r.Page, p.Claimed)
	}
	if len(leases) > 0 {
		b.add(s.queueSQL("take", row, words{"taken": strings.TrimPrefix(taken.String(), ","), "lease": c.Lease.Microseconds()}), []byte(c.Worker))
		b.read(func(rows *sql.Rows) error {
			j := penstock.Job{Group: c.Group}
			var headers []byte
			if err := rows.Scan(&j.Lease, &j.Attempt, &j.LeaseUntil, &j.ID, &j.Priority, &j.CreatedAt, &j.Key, &headers, &j.Payload); err != nil {
				return err
			}
			r.Page[places[j.ID]].Job = j
			return tables.Headers(headers, &r.Page[places[j.ID]].Job.Headers)
		}, s.queueSQL("taken", row, words{"these": these(leases)}))
	}
	return t.finish(ctx, b)
}

// choose gives leases to what may be taken of a page. Jobs that wait may fill what was read of those never claimed, or of those to be tried again. What comes
// behind these is not taken, unless it is the last time: there may be jobs that come first.
func choose(row *queueRow, r *tables.Round, fresh, tried []candidate, room int) []candidate {
	page := slices.Concat(fresh, tried)
	slices.SortStableFunc(page, func(a, b candidate) int {
		later := cmp.Or(a.TS.Compare(b.TS), cmp.Compare(a.Job.ID, b.Job.ID))
		if row.LIFO() {
			later = -later
		}
		return cmp.Or(cmp.Compare(a.Job.Priority, b.Job.Priority), later)
	})
	short := func(of []candidate) bool {
		free := 0
		for _, n := range of {
			if !n.Waits {
				free++
			}
		}
		return !r.Last && len(of) >= r.Window && free < r.Jobs
	}
	if short(tried) {
		room = 0
	}
	reach := int64(0)
	if short(fresh) {
		reach = fresh[len(fresh)-1].Job.ID
	}
	for i := range page {
		if room == 0 {
			break
		}
		if n := &page[i]; !n.Waits {
			n.Job.Lease = rand.Int64N(1<<53-1) + 1 // any reader of JSON takes it
			room--
		}
		if page[i].Job.ID == reach {
			break
		}
	}
	return page
}
