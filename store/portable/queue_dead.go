package portable

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
)

// DeadJobs implements penstock.QueueStore.
func (s *Store) DeadJobs(ctx context.Context, q penstock.DeadJobQuery) ([]penstock.DeadJob, error) {
	row, err := s.findQueue(ctx, q.Queue)
	if err != nil {
		return nil, err
	}
	dead, err := s.deadJobs(ctx, s.pool, row, q, "")
	return dead, s.explain(err)
}

func (s *Store) deadJobs(ctx context.Context, on querier, row *queueRow, q penstock.DeadJobQuery, lock string) ([]penstock.DeadJob, error) {
	most := any(nil)
	if q.Limit > 0 {
		most = q.Limit
	}
	rows, err := on.Query(ctx, s.sql("chosen_jobs", "")+lock, row.id, orNullSlice(q.IDs), q.Key, q.Group, q.Error,
		orNullTime(q.DiedBefore), orNullTime(q.DiedAfter), q.AfterID, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (d penstock.DeadJob, err error) {
		var h pg.History
		var headers, failures []byte
		j := &d.Job
		if err := r.Scan(&j.ID, &j.Group, &j.Priority, &j.CreatedAt, &j.Key, &headers, &j.Payload, &j.Attempt, &failures, &d.At); err != nil {
			return d, err
		}
		if len(headers) > 0 {
			if err := json.Unmarshal(headers, &j.Headers); err != nil {
				return d, err
			}
		}
		j.CreatedAt, d.At = j.CreatedAt.UTC(), d.At.UTC()
		err = h.Parse(failures)
		d.Failures = h.Failures
		return d, err
	})
}

// RetryDeadJobs implements penstock.QueueStore.
func (s *Store) RetryDeadJobs(ctx context.Context, q penstock.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, func(b *pgx.Batch, row *queueRow, ids []int64, now time.Time) {
		b.Queue(s.queueSQL("revive_jobs", q.Queue, false), row.id, ids, now)
		b.Queue(s.sql("revive_tries", ""), row.id, ids, now)
	})
}

// DiscardDeadJobs implements penstock.QueueStore.
func (s *Store) DiscardDeadJobs(ctx context.Context, q penstock.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, func(*pgx.Batch, *queueRow, []int64, time.Time) {})
}

// takeDeadJobs deletes the chosen ones, after something was done with them.
func (s *Store) takeDeadJobs(ctx context.Context, q penstock.DeadJobQuery, first func(b *pgx.Batch, row *queueRow, ids []int64, now time.Time)) (n int, err error) {
	err = s.inQueue(ctx, q.Queue, func(tx pgx.Tx, row *queueRow) error {
		dead, err := s.deadJobs(ctx, tx, row, q, " for update")
		if n = len(dead); err != nil || n == 0 {
			return err
		}
		ids := make([]int64, n)
		for i := range dead {
			ids[i] = dead[i].Job.ID
		}
		var now time.Time
		if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		b := &pgx.Batch{}
		first(b, row, ids, now)
		b.Queue(s.sql("delete from {schema}.dead_jobs where queue_id = $1 and seq = any ($2)", ""), row.id, ids)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
