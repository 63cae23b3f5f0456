package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
	"github.com/penstock/penstock/internal/tables"
)

// SetSchedule implements driver.QueueStore. If it changes a schedule but not its
// Cron, a job that was due stays due. The job's NotBefore is ignored.
func (s *Store) SetSchedule(ctx context.Context, sch penstock.Schedule) error {
	if err := sch.Validate(); err != nil {
		return err
	}
	j := &sch.Job
	return s.Queue(sch.Queue).inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		next, err := cron.Next(sch.Cron, now)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, statement("set_schedule"), row.id, sch.Name, sch.Cron, next.UnixMicro(),
			j.Group, j.Priority, j.Key, j.DedupKey, encodeHeaders(j.Headers), notNull(j.Payload))
		return err
	})
}

// DropSchedule implements driver.QueueStore.
func (s *Store) DropSchedule(ctx context.Context, name, schedule string) error {
	return s.Queue(name).inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, _ time.Time) error {
		done, err := tx.ExecContext(ctx, `delete from penstock_schedules where queue_id = ? and name = ?`, row.id, schedule)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return tables.NoSchedule(name, schedule)
	})
}

// Schedules implements driver.QueueStore.
func (s *Store) Schedules(ctx context.Context, name string) ([]penstock.Schedule, error) {
	var all []penstock.Schedule
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row, err := findQueue(ctx, tx, name)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, statement("schedules"), row.id)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			sch := penstock.Schedule{Queue: name}
			var next int64
			if err := scanSchedule(rows, &sch, &sch.Name, &sch.Cron, &next); err != nil {
				return err
			}
			sch.Next = fromMicros(next)
			all = append(all, sch)
		}
		return rows.Err()
	})
	return all, err
}

// scanSchedule reads the columns in dest and then those of the job.
func scanSchedule(rows *sql.Rows, sch *penstock.Schedule, dest ...any) error {
	var head string
	var body payload
	j := &sch.Job
	if err := rows.Scan(append(dest, &j.Group, &j.Priority, &j.Key, &j.DedupKey, &head, &body)...); err != nil {
		return err
	}
	j.Headers, j.Payload = headers(head), notNull(body)
	return nil
}

// runSchedules enqueues the periodic jobs that are due, one of each, and says when they are next; also of those that ran while the
// clock was far ahead. The process that holds the lock does it; the others find it done.
func (q *Queue) runSchedules(ctx context.Context) error {
	return q.inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) error {
		due, err := dueSchedules(ctx, tx, row, now)
		if err != nil {
			return err
		}
		ahead, err := aheadSchedules(ctx, tx, row, now)
		if err != nil {
			return err
		}
		for _, sch := range due {
			if _, err := q.EnqueueTx(ctx, tx, sch.Job); err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
		}
		for _, sch := range append(due, ahead...) {
			next, err := cron.Next(sch.Cron, now)
			if err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			if _, err := tx.ExecContext(ctx, `update penstock_schedules set next = ? where queue_id = ? and name = ?`, next.UnixMicro(), row.id, sch.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

func dueSchedules(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) (due []penstock.Schedule, err error) {
	rows, err := tx.QueryContext(ctx, statement("due_schedules"), row.id, now.UnixMicro())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var sch penstock.Schedule
		if err := scanSchedule(rows, &sch, &sch.Name, &sch.Cron); err != nil {
			return nil, err
		}
		due = append(due, sch)
	}
	return due, rows.Err()
}

// aheadSchedules are those that ran while the clock was far ahead.
func aheadSchedules(ctx context.Context, tx *sql.Tx, row queueRow, now time.Time) (ahead []penstock.Schedule, err error) {
	rows, err := tx.QueryContext(ctx, `select name, cron, next from penstock_schedules where queue_id = ? and next > ?`, row.id, now.Add(cron.Trust).UnixMicro())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var sch penstock.Schedule
		var next int64
		if err := rows.Scan(&sch.Name, &sch.Cron, &next); err != nil {
			return nil, err
		}
		if cron.Ahead(sch.Cron, fromMicros(next), now) {
			ahead = append(ahead, sch)
		}
	}
	return ahead, rows.Err()
}
