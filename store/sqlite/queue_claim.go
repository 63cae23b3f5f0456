package sqlite

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/tables"
)

// claimable has the facts that a claim needs before it takes jobs.
type claimable struct {
	there      bool // the queue is
	room       int  // how many it may take; 0 of a queue that is paused
	starts     bool // by a rate
	ready, due bool // there are jobs that may run, or that have become due for it
}

func readClaimable(ctx context.Context, on tables.Runner, row *tables.QueueRow, c driver.Claim) (at claimable, err error) {
	b, policies := &tables.Batch{}, 0
	b.Row(&at.there, "claimable", row.Args(tables.Args{"group": c.Group, "most": c.Jobs}), &at.room, &policies, &at.ready, &at.due)
	if err := on.Run(ctx, b); err != nil || policies == 0 {
		return at, err
	}
	b, r := &tables.Batch{}, &tables.Round{}
	r.RoomOf(b, row, c.Group)
	err = on.Run(ctx, b)
	at.room, at.starts = min(at.room, r.RoomInGroup), r.Started
	return at, err
}

func (s onTables) LimitedGroups(row *tables.QueueRow) tables.Args {
	now := time.Now()
	return tables.WithLimits(row, "coalesce((select r.n from running r where r.group_key = g.group_key), 0)", func(text string, with tables.Args) string {
		text, _ = rendered(text, with.With(tables.Args{"clock_micros": tables.SQL(strconv.FormatInt(now.UnixMicro(), 10))}), now)
		return text
	})
}

// Round implements tables.QueueDB. It reads before it takes the lock, so that waiting workers do not keep producers from writing.
func (s onTables) Round(ctx context.Context, row *tables.QueueRow, c driver.Claim, r *tables.Round, _ []int64, first *tables.Batch) ([]int64, error) {
	r.Page = nil
	if len(*first) == 0 {
		at, err := readClaimable(ctx, s, row, c)
		if r.There = at.there; err != nil || !at.due && (at.room == 0 || !at.ready) {
			return nil, err
		}
	}
	return nil, s.Within(ctx, func(tx tables.Tx) error {
		err := tx.Run(ctx, first)
		if err != nil {
			return err
		}
		at, err := readClaimable(ctx, tx, row, c)
		if err == nil && at.due {
			if _, err = s.queues.Queue(row.Name).Back(ctx, tx, row); err == nil {
				at, err = readClaimable(ctx, tx, row, c)
			}
		}
		if r.There, r.Started = at.there, at.starts; err != nil || at.room == 0 || !at.ready {
			return err
		}
		if r.Page, err = claim(ctx, tx.(onTx), row, c, at.room); err != nil || !at.starts || len(r.Page) == 0 {
			return err
		}
		leases := make([]int64, len(r.Page))
		for i := range r.Page {
			leases[i] = r.Page[i].Job.Lease
		}
		b := new(tables.Batch).Do("note_starts", row.Args(tables.Args{"group": c.Group, "leases": leases}))
		return tx.Run(ctx, b)
	})
}

// claim leases the jobs that come next.
func claim(ctx context.Context, tx onTx, row *tables.QueueRow, c driver.Claim, room int) (page []tables.Claimed, err error) {
	var leases [][2]int64    // seq and attempt of each
	var keys [][3]any        // seq, key and id of those with a key
	var priority, rank int64 // where the last one stood
	if err := tx.Run(ctx, new(tables.Batch).Rows(func(scan tables.Scan) error {
		j := penstock.Job{Group: c.Group}
		var seq, createdAt int64
		var head, past string
		if err := scan(&priority, &rank, &seq, &j.ID, &createdAt, &j.Key, &head, &j.Payload, &past); err != nil {
			return err
		}
		h := readHistory(past)
		j.Priority, j.Attempt, j.CreatedAt, j.Headers, j.Report = int(priority), h.Attempt+1, time.UnixMilli(createdAt).UTC(), tables.Headers([]byte(head)), h.Report
		page, leases = append(page, tables.Claimed{Job: j}), append(leases, [2]int64{seq, int64(j.Attempt)})
		if j.Key != "" {
			keys = append(keys, [3]any{seq, j.Key, j.ID})
		}
		return nil
	}, "claim", row.Args(tables.Args{"group": c.Group, "room": room}))); err != nil || len(page) == 0 {
		return nil, err
	}
	b := new(tables.Batch).Do("take_ready", row.Args(tables.Args{"group": c.Group, "priority": priority, "rank": rank}))
	if err := tx.Run(ctx, b); err != nil {
		return nil, err
	}
	now := time.Now() // the time spent so far does not count
	until := now.Add(c.Lease)
	text, args := rendered("lease", row.Args(tables.Args{"until": until, "worker": c.Worker, "leases": leases, "now": now}), now)
	done, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	last, err := done.LastInsertId()
	if err != nil {
		return nil, err
	}
	for i := range page {
		page[i].Job.Lease, page[i].Job.LeaseUntil = last-int64(len(page)-1-i), until.UTC().Truncate(time.Microsecond)
	}
	if len(keys) == 0 {
		return page, nil
	}
	b = &tables.Batch{} // in this order: of a busy key nothing becomes ready when its first job leaves
	b.Do("occupy", row.Args(tables.Args{"keys": keys}))
	b.Do("leave_keyed", row.Args(tables.Args{"keys": keys}))
	return page, tx.Run(ctx, b)
}

// history is that of a message or a job: a column of JSON next to it.
type history = pg.History

// mostAttempts is more than the attempts of any message: a larger number, written by hand, continues from
// there.
const mostAttempts = 1_000_000_000

// readHistory reads the column; "" is a message that was never refused. An entry that was written by hand and cannot be
// read becomes a failure that says so. It must not hide the others, or stop a reader.
func readHistory(column string) (h history) {
	if column == "" {
		return h
	}
	if err := json.Unmarshal([]byte(column), &h); err != nil {
		h = history{Attempt: 1, Failures: []penstock.Failure{{Err: "earlier failures cannot be read: " + err.Error()}}}
	}
	h.Attempt = min(max(h.Attempt, 0), mostAttempts)
	return h
}
