package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

// claimable is what a Claim has to know before it takes jobs.
type claimable struct {
	queueRow
	room       int  // how many it may take; 0 of a queue that is paused
	ready, due bool // there are jobs that may run, or that have become due for it
}

func readClaimable(ctx context.Context, q querier, name string, c driver.Claim, now time.Time) (claimable, error) {
	at := claimable{queueRow: queueRow{name: name}}
	err := q.QueryRowContext(ctx, statement("claimable"), sql.Named("queue", name), sql.Named("group_key", c.Group), sql.Named("jobs", c.Jobs), sql.Named("now", now.UnixMicro())).
		Scan(&at.id, &at.lifo, &at.maxAttempts, &at.room, &at.ready, &at.due)
	if errors.Is(err, sql.ErrNoRows) {
		return at, tables.NoQueue(name)
	}
	return at, err
}

// Claim implements driver.Queue. It reads before it takes the lock, so that waiting
// workers do not keep producers from writing.
func (q *Queue) Claim(ctx context.Context, c driver.Claim) ([]penstock.Job, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var worth bool
	err := q.store.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		at, err := readClaimable(ctx, tx, q.name, c, time.Now())
		worth = at.due || at.room > 0 && at.ready
		return err
	})
	if err != nil || !worth {
		return nil, err
	}
	var jobs []penstock.Job
	err = q.store.write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		jobs, err = claim(ctx, tx, q.name, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// claim leases jobs within a transaction that writes.
func claim(ctx context.Context, tx *sql.Tx, name string, c driver.Claim) ([]penstock.Job, error) {
	now := time.Now()
	at, err := readClaimable(ctx, tx, name, c, now)
	if err == nil && at.due {
		if _, err = maintain(ctx, tx, at.queueRow, now); err == nil {
			at, err = readClaimable(ctx, tx, name, c, now)
		}
	}
	if err != nil || at.room == 0 || !at.ready {
		return nil, err
	}
	next, err := readReady(ctx, tx, at, c.Group)
	if err != nil || len(next.jobs) == 0 {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, statement("take_ready"), at.id, c.Group, next.priority, next.rank); err != nil {
		return nil, err
	}
	now = time.Now() // the time spent so far does not count
	until := now.Add(c.Lease)
	done, err := tx.ExecContext(ctx, statement("lease"), at.id, until.UnixMicro(), c.Worker, array(next.leases), now.UnixMicro())
	if err != nil {
		return nil, err
	}
	last, err := done.LastInsertId()
	if err != nil {
		return nil, err
	}
	for i := range next.jobs {
		next.jobs[i].Lease = last - int64(len(next.jobs)-1-i)
		next.jobs[i].LeaseUntil = until.UTC().Truncate(time.Microsecond)
	}
	if len(next.keys) == 0 {
		return next.jobs, nil
	}
	// In this order: of a busy key nothing becomes ready when its first job leaves.
	for _, statement := range []string{statement("occupy"), statement("leave_keyed")} {
		if _, err := tx.ExecContext(ctx, statement, at.id, array(next.keys)); err != nil {
			return nil, err
		}
	}
	return next.jobs, nil
}

// upcoming is the jobs that come next.
type upcoming struct {
	jobs           []penstock.Job
	leases         [][2]int64 // seq and attempt of each
	keys           [][3]any   // seq, key and id of those with a key
	priority, rank int64      // where the last one stood
}

func readReady(ctx context.Context, tx *sql.Tx, at claimable, group string) (l upcoming, err error) {
	rows, err := tx.QueryContext(ctx, onQueue(at.name, statement("claim")), at.id, group, at.room)
	if err != nil {
		return l, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		j := penstock.Job{Group: group}
		var seq, createdAt int64
		var head, past string
		var body payload
		if err := rows.Scan(&l.priority, &l.rank, &seq, &j.ID, &createdAt, &j.Key, &head, &body, &past); err != nil {
			return l, err
		}
		h := readHistory(past)
		j.Priority, j.Attempt = int(l.priority), h.Attempts+1
		j.CreatedAt, j.Headers, j.Payload = time.UnixMilli(createdAt).UTC(), headers(head), notNull(body)
		l.jobs = append(l.jobs, j)
		l.leases = append(l.leases, [2]int64{seq, int64(j.Attempt)})
		if j.Key != "" {
			l.keys = append(l.keys, [3]any{seq, j.Key, j.ID})
		}
	}
	return l, rows.Err()
}
