package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/penstock/penstock/admin"
)

// DeadJobs implements driver.QueueStore.
func (s *Store) DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error) {
	var dead []admin.DeadJob
	err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row, err := findQueue(ctx, tx, q.Queue)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, strings.ReplaceAll(statement("dead_jobs"), "{chosen}", statement("chosen_jobs")), row.choose(q)...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		bytes := 0
		for rows.Next() {
			var d admin.DeadJob
			var at, createdAt int64
			var past, head string
			var body payload
			if err := rows.Scan(&past, &at, &d.Job.ID, &d.Job.Group, &d.Job.Priority, &createdAt, &d.Job.Key, &head, &body); err != nil {
				return err
			}
			h := readHistory(past)
			d.Job.Attempt, d.Failures, d.At = h.Attempts, h.Failures, fromMicros(at)
			d.Job.CreatedAt, d.Job.Headers, d.Job.Payload = time.UnixMilli(createdAt).UTC(), headers(head), notNull(body)
			dead = append(dead, d)
			if bytes += len(d.Job.Payload); q.Bytes > 0 && bytes >= q.Bytes {
				break
			}
		}
		return rows.Err()
	})
	return dead, err
}

// causesSQL counts dead letters by their last errors.
const causesSQL = `select coalesce(case when json_valid(history) then json_extract(history, '$.failures[#-1].error') end, ''), count(*), min(at), max(at) from {table}
 where {owner} and {number} in ({chosen}) group by 1 order by 2 desc`

func readCauses(ctx context.Context, tx *sql.Tx, statement string, args []any) (found []admin.DeadCause, err error) {
	rows, err := tx.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c admin.DeadCause
		var first, last int64
		if err := rows.Scan(&c.Error, &c.Letters, &first, &last); err != nil {
			return nil, err
		}
		c.First, c.Last = fromMicros(first), fromMicros(last)
		found = append(found, c)
	}
	return found, rows.Err()
}

// DeadJobCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) (found []admin.DeadCause, err error) {
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		row, err := findQueue(ctx, tx, q.Queue)
		if err != nil {
			return err
		}
		found, err = readCauses(ctx, tx, strings.NewReplacer("{table}", "penstock_dead_jobs", "{owner}", "queue_id = :queue", "{number}", "id", "{chosen}", statement("chosen_jobs")).Replace(causesSQL), row.choose(q))
		return err
	})
	return found, err
}

// RetryDeadJobs implements driver.QueueStore.
func (s *Store) RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, func(ctx context.Context, tx *sql.Tx, row queueRow, ids []int64) error {
		for _, statement := range []string{statement("retry_jobs"), statement("retry_histories")} {
			if _, err := tx.ExecContext(ctx, onQueue(q.Queue, statement), row.id, array(ids)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DiscardDeadJobs implements driver.QueueStore.
func (s *Store) DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, func(context.Context, *sql.Tx, queueRow, []int64) error { return nil })
}

// takeDeadJobs deletes the chosen ones, after something was done with them.
func (s *Store) takeDeadJobs(ctx context.Context, q admin.DeadJobQuery, first func(ctx context.Context, tx *sql.Tx, row queueRow, ids []int64) error) (n int, err error) {
	err = s.Queue(q.Queue).inQueue(ctx, func(ctx context.Context, tx *sql.Tx, row queueRow, _ time.Time) error {
		ids, err := readColumn[int64](ctx, tx, statement("chosen_jobs"), row.choose(q)...)
		if n = len(ids); err != nil || n == 0 {
			return err
		}
		if err := first(ctx, tx, row, ids); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `delete from penstock_dead_jobs where queue_id = ? and id in (select value from json_each(?))`, row.id, array(ids))
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// choose makes the parameters of sql/chosen_jobs.sql; NULL does not narrow.
func (q queueRow) choose(d admin.DeadJobQuery) []any {
	limit := -1
	if d.Limit > 0 {
		limit = d.Limit
	}
	var ids, before, after, afterID any
	if len(d.IDs) > 0 {
		ids = array(d.IDs)
	}
	if !d.DiedBefore.IsZero() {
		before = d.DiedBefore.Add(time.Microsecond - 1).UnixMicro()
	}
	if !d.DiedAfter.IsZero() {
		after = d.DiedAfter.UnixMicro()
	}
	if d.AfterID != 0 {
		afterID = d.AfterID
	}
	return []any{sql.Named("queue", q.id), sql.Named("ids", ids), sql.Named("key", orNull(d.Key)), sql.Named("group_key", orNull(d.Group)),
		sql.Named("error", orNull(d.Error)), sql.Named("before", before), sql.Named("after", after), sql.Named("after_id", afterID), sql.Named("limit", limit)}
}
