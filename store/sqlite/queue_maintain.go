package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// maintainJobs is how many leases that ended, and how many jobs that became due, one
// transaction takes.
const maintainJobs = 500

// Maintain implements driver.Queue. It reads before it takes the lock. Like Maintain
// of outboxes it gives free pages back.
func (q *Queue) Maintain(ctx context.Context) error {
	var row queueRow
	var due, scheduled, forgettable bool
	var ahead []penstock.Schedule
	now := time.Now()
	err := q.store.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, statement("housekeeping"), sql.Named("queue", q.name), sql.Named("now", now.UnixMicro())).
			Scan(&row.id, &row.dedupWindow, &due, &scheduled, &forgettable)
		if errors.Is(err, sql.ErrNoRows) {
			return tables.NoQueue(q.name)
		}
		if err == nil {
			ahead, err = aheadSchedules(ctx, tx, row, now)
		}
		return err
	})
	if err != nil {
		return err
	}
	for more := due; more; {
		err := q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) (err error) {
			more, err = maintain(ctx, tx, row, now)
			return err
		})
		if err != nil {
			return err
		}
	}
	if scheduled || len(ahead) > 0 {
		if err := q.runSchedules(ctx); err != nil {
			return err
		}
	}
	for more := forgettable; more; {
		err := q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
			done, err := tx.ExecContext(ctx, statement("forget_dedup"), row.id, now.Add(-row.dedupWindow).UnixMicro(), firstChunk)
			if err != nil {
				return err
			}
			n, err := done.RowsAffected()
			more = n == firstChunk
			return err
		})
		if err != nil {
			return err
		}
	}
	return q.store.shrink(ctx)
}

// maintain brings back some jobs whose leases have ended, and those whose time has
// come. more is true if there may be others.
func maintain(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) (more bool, err error) {
	expired, err := expire(ctx, tx, row, now)
	if err != nil {
		return false, err
	}
	seqs, err := readColumn[int64](ctx, tx, statement("due_jobs"), row.id, now.UnixMicro(), maintainJobs)
	if err != nil {
		return false, err
	}
	more = expired == maintainJobs || len(seqs) == maintainJobs
	if len(seqs) == 0 {
		return more, nil
	}
	if _, err := tx.ExecContext(ctx, `delete from penstock_scheduled where queue_id = ? and seq in (select value from json_each(?))`, row.id, array(seqs)); err != nil {
		return false, err
	}
	return more, wake(ctx, tx, row, seqs)
}

// expire ends leases whose time is over. It counts as a failure of the job.
func expire(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) (n int, err error) {
	ended, err := readExpired(ctx, tx, row, now)
	if n = len(ended); err != nil || n == 0 {
		return 0, err
	}
	var dead, back []tried
	var seqs, all []int64
	for _, j := range ended {
		all = append(all, j.seq)
		reason := "lease expired"
		if j.worker != "" {
			reason += ", held by " + j.worker
		}
		j.failed(reason, now)
		if j.spent(row.maxAttempts) {
			dead = append(dead, j)
			continue
		}
		back = append(back, j)
		seqs = append(seqs, j.seq)
	}
	if _, err := tx.ExecContext(ctx, `delete from penstock_leases where queue_id = ? and seq in (select value from json_each(?))`, row.id, array(all)); err != nil {
		return 0, err
	}
	if len(dead) > 0 {
		if err := deadLetter(ctx, tx, row, dead, now); err != nil {
			return 0, err
		}
	}
	if len(back) > 0 {
		if err := remember(ctx, tx, row, back); err != nil {
			return 0, err
		}
	}
	return n, wake(ctx, tx, row, seqs)
}

func readExpired(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) (ended []tried, err error) {
	rows, err := tx.QueryContext(ctx, statement("expired"), row.id, now.UnixMicro(), maintainJobs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var j tried
		if err := j.scan(rows); err != nil {
			return nil, err
		}
		ended = append(ended, j)
	}
	return ended, rows.Err()
}

// wake makes jobs ready that stand nowhere, or has them wait for their key. A key stays
// busy with the job that it is busy with.
func wake(ctx context.Context, tx *sql.Tx, row queueRow, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	for _, statement := range []string{statement("wake_keyed"), statement("wake")} {
		if _, err := tx.ExecContext(ctx, onQueue(row.name, statement), row.id, row.sign(), array(seqs)); err != nil {
			return err
		}
	}
	return nil
}
