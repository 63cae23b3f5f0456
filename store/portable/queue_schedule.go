package portable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
	"github.com/penstock/penstock/internal/tables"
)

// SetSchedule implements penstock.QueueStore. If it changes a schedule and not its times, what was due stays due.
func (s *Store) SetSchedule(ctx context.Context, sch penstock.Schedule) error {
	if err := sch.Validate(); err != nil {
		return err
	}
	next, err := cron.Next(sch.Cron, time.Now())
	if err != nil {
		return err
	}
	sch.Job.NotBefore = time.Time{}
	return s.inQueue(ctx, sch.Queue, func(tx pgx.Tx, q *queueRow) error {
		_, err := tx.Exec(ctx, s.sql(`insert into {schema}.schedules as s (queue_id, name, cron, next, job) values ($1, $2, $3, $4, $5)
			on conflict (queue_id, name) do update set cron = excluded.cron, job = excluded.job, next = case when s.cron = excluded.cron then s.next else excluded.next end`, ""),
			q.id, sch.Name, sch.Cron, next, sch.Job)
		return err
	})
}

// DropSchedule implements penstock.QueueStore.
func (s *Store) DropSchedule(ctx context.Context, name, schedule string) error {
	return s.inQueue(ctx, name, func(tx pgx.Tx, q *queueRow) error {
		done, err := tx.Exec(ctx, s.sql("delete from {schema}.schedules where queue_id = $1 and name = $2", ""), q.id, schedule)
		if err != nil || done.RowsAffected() > 0 {
			return err
		}
		return tables.NoSchedule(name, schedule)
	})
}

// Schedules implements penstock.QueueStore.
func (s *Store) Schedules(ctx context.Context, name string) ([]penstock.Schedule, error) {
	q, err := s.findQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	all, err := s.readSchedules(ctx, s.pool, q, " order by name")
	return all, s.explain(err)
}

func (s *Store) readSchedules(ctx context.Context, on querier, q *queueRow, which string, args ...any) ([]penstock.Schedule, error) {
	rows, err := on.Query(ctx, s.sql("select name, cron, next, job from {schema}.schedules where queue_id = $1"+which, ""), append([]any{q.id}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (penstock.Schedule, error) {
		sch := penstock.Schedule{Queue: q.name}
		var job []byte
		if err := r.Scan(&sch.Name, &sch.Cron, &sch.Next, &job); err != nil {
			return sch, err
		}
		sch.Next = sch.Next.UTC()
		return sch, json.Unmarshal(job, &sch.Job)
	})
}

// runSchedules enqueues the periodic jobs that are due, one of each, and says when they are next. The rows are locked: of
// several processes one does it.
func (q queue) runSchedules(ctx context.Context) error {
	return q.store.inQueue(ctx, q.name, func(tx pgx.Tx, row *queueRow) error {
		now := time.Now()
		due, err := q.store.readSchedules(ctx, tx, row, " and next <= $2 order by name for update", now)
		if err != nil {
			return err
		}
		for _, sch := range due {
			if _, err := (&Queue{q.store, q.name}).Enqueue(ctx, tx, sch.Job); err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			next, err := cron.Next(sch.Cron, now)
			if err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			if _, err := tx.Exec(ctx, q.store.sql("update {schema}.schedules set next = $3 where queue_id = $1 and name = $2", ""), row.id, sch.Name, next); err != nil {
				return err
			}
		}
		return nil
	})
}
