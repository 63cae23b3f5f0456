package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/backoff"
	"github.com/penstock/penstock/internal/tables"
)

// inQueue runs fn in one transaction that writes.
func (q *Queue) inQueue(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error) error {
	return q.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row, err := findQueue(ctx, tx, q.name)
		if err != nil {
			return err
		}
		return fn(ctx, tx, row, time.Now())
	})
}

// Extend implements driver.Queue.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, leases ...int64) (held []int64, err error) {
	if err := driver.ValidateLease(lease); err != nil {
		return nil, err
	}
	err = q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		held, err = readColumn[int64](ctx, tx, statement("extend"), array(leases), row.id, now.UnixMicro(), now.Add(lease).UnixMicro())
		return err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Ack implements driver.Queue.
func (q *Queue) Ack(ctx context.Context, leases ...int64) (held []int64, err error) {
	err = q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		held, err = ack(ctx, tx, row, leases, now)
		return err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// ack ends jobs. What else there is of a job goes with its row, and the next one
// of its key is ready.
func ack(ctx context.Context, tx *sql.Tx, row queueRow, leases []int64, now time.Time) (held []int64, err error) {
	held, seqs, err := takeLeases(ctx, tx, row, leases, now)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, onQueue(row.name, `delete from {table} where seq in (select value from json_each(?))`), array(seqs))
	return held, err
}

// takeLeases ends the leases that are still held, and tells whose they were.
func takeLeases(ctx context.Context, tx *sql.Tx, row queueRow, leases []int64, now time.Time) (held, seqs []int64, err error) {
	rows, err := tx.QueryContext(ctx, statement("ack"), array(leases), row.id, now.UnixMicro())
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var lease, seq int64
		if err := rows.Scan(&lease, &seq); err != nil {
			return nil, nil, err
		}
		held, seqs = append(held, lease), append(seqs, seq)
	}
	return held, seqs, rows.Err()
}

// Release implements driver.Releaser.
func (q *Queue) Release(ctx context.Context, after time.Duration, leases ...int64) (held []int64, err error) {
	err = q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		var seqs []int64
		if held, seqs, err = takeLeases(ctx, tx, row, leases, now); err != nil {
			return err
		}
		return runAfter(ctx, tx, row, seqs, after, now)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Retry implements driver.Queue.
func (q *Queue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error) {
	err = q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		dead, err = retryJob(ctx, tx, row, lease, after, reason, now)
		return err
	})
	return dead && err == nil, err
}

func retryJob(ctx context.Context, tx *sql.Tx, row queueRow, lease int64, after time.Duration, reason string, now time.Time) (dead bool, err error) {
	j, err := heldJob(ctx, tx, row, lease, now)
	if err != nil {
		return false, err
	}
	j.failed(reason, now)
	if j.spent(row.maxAttempts) {
		return true, deadLetter(ctx, tx, row, []tried{j}, now)
	}
	if err := remember(ctx, tx, row, []tried{j}); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, `delete from penstock_leases where lease = ?`, lease); err != nil {
		return false, err
	}
	if after < 0 {
		after = backoff.After(j.attempt)
	}
	return false, runAfter(ctx, tx, row, []int64{j.seq}, after, now)
}

// runAfter has jobs that have begun run again after a while.
func runAfter(ctx context.Context, tx *sql.Tx, row queueRow, seqs []int64, after time.Duration, now time.Time) error {
	if after <= 0 {
		return wake(ctx, tx, row, seqs)
	}
	_, err := tx.ExecContext(ctx, `insert into penstock_scheduled (queue_id, seq, due) select ?, value, ? from json_each(?)`, row.id, now.Add(after).UnixMicro(), array(seqs))
	return err
}

// DeadLetter implements driver.Queue.
func (q *Queue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	return q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		j, err := heldJob(ctx, tx, row, lease, now)
		if err != nil {
			return err
		}
		j.failed(reason, now)
		return deadLetter(ctx, tx, row, []tried{j}, now)
	})
}

// tried is a job whose attempt did not end well.
type tried struct {
	seq     int64
	attempt int
	worker  string
	history history
}

// MarshalJSON makes the argument of the statements that remember and dead-letter jobs.
func (j tried) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{j.seq, j.history})
}

func (j *tried) failed(reason string, at time.Time) {
	j.history = j.history.after([]penstock.Failure{{Attempt: j.attempt, At: at.UTC(), Err: reason}})
}

// spent reports whether no attempt is left. A dead letter that was sent back has
// one, whatever the limit: it is asked when that has failed.
func (j *tried) spent(limit int) bool { return j.history.Attempts >= limit }

func (j *tried) scan(row interface{ Scan(...any) error }) (err error) {
	var past string
	if err := row.Scan(&j.seq, &j.attempt, &j.worker, &past); err != nil {
		return err
	}
	j.history = readHistory(past)
	return nil
}

// heldJob finds the job of a lease.
func heldJob(ctx context.Context, tx *sql.Tx, row queueRow, lease int64, now time.Time) (j tried, err error) {
	err = j.scan(tx.QueryRowContext(ctx, statement("held_lease"), lease, row.id, now.UnixMicro()))
	if errors.Is(err, sql.ErrNoRows) {
		err = tables.LeaseLost(row.name, lease)
	}
	return j, err
}

// remember writes down what jobs have been through.
func remember(ctx context.Context, tx *sql.Tx, row queueRow, jobs []tried) error {
	_, err := tx.ExecContext(ctx, statement("remember"), row.id, array(jobs))
	return err
}

// deadLetter makes jobs dead letters. The next ones of their keys are ready.
func deadLetter(ctx context.Context, tx *sql.Tx, row queueRow, jobs []tried, now time.Time) error {
	if _, err := tx.ExecContext(ctx, onQueue(row.name, statement("dead_letter_jobs")), row.id, now.UnixMicro(), array(jobs)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, onQueue(row.name, `delete from {table} where seq in (select json_extract(value, '$[0]') from json_each(?))`), array(jobs))
	return err
}

// CancelJobs implements driver.QueueStore.
func (s *Store) CancelJobs(ctx context.Context, name string, ids ...int64) (n int, err error) {
	err = s.Queue(name).inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, _ time.Time) error {
		done, err := tx.ExecContext(ctx, onQueue(name, statement("cancel")), array(ids))
		if err != nil {
			return err
		}
		gone, err := done.RowsAffected()
		n = int(gone)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
