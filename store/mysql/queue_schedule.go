package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

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
	job, err := json.Marshal(sch.Job)
	if err != nil {
		return err
	}
	return s.inQueue(ctx, sch.Queue, func(t *tx, q *queueRow) error {
		b := &batch{}
		b.add(s.queueSQL(`insert into {schema}.schedules (queue_id, name, cron, next, job) values ({queue}, ?, ?, {next}, ?)
			on duplicate key update next = case when cron = values(cron) then next else values(next) end, cron = values(cron), job = values(job)`, q, words{"next": at(next)}),
			[]byte(sch.Name), []byte(sch.Cron), job)
		return t.finish(ctx, b)
	})
}

// DropSchedule implements penstock.QueueStore.
func (s *Store) DropSchedule(ctx context.Context, name, schedule string) error {
	return s.inQueue(ctx, name, func(t *tx, q *queueRow) error {
		var n int64
		b := &batch{}
		b.add(s.queueSQL("delete from {schema}.schedules where queue_id = {queue} and name = ?", q, nil), []byte(schedule))
		b.counted(&n)
		if err := t.finish(ctx, b); err != nil || n > 0 {
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
	all, err := s.readSchedules(ctx, s, q, "order by name")
	return all, s.explain(err)
}

func (s *Store) readSchedules(ctx context.Context, on runner, q *queueRow, which string) (all []penstock.Schedule, err error) {
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		sch := penstock.Schedule{Queue: q.name}
		var job []byte
		if err := rows.Scan(&sch.Name, &sch.Cron, &sch.Next, &job); err != nil {
			return err
		}
		err := json.Unmarshal(job, &sch.Job)
		all = append(all, sch)
		return err
	}, s.queueSQL("select name, cron, next, job from {schema}.schedules where queue_id = {queue} "+which, q, nil))
	return all, on.run(ctx, b)
}

// runSchedules enqueues the periodic jobs that are due, one of each, and says when they are next. The rows are locked: of
// several processes one does it.
func (q queue) runSchedules(ctx context.Context) error {
	return q.store.inQueue(ctx, q.name, func(t *tx, row *queueRow) error {
		now := time.Now()
		due, err := q.store.readSchedules(ctx, t, row, "and next <= "+at(now)+" order by name for update")
		if err != nil {
			return err
		}
		b := &batch{}
		for _, sch := range due {
			if _, err := (&Queue{store: q.store, name: q.name}).Enqueue(ctx, t.Conn, sch.Job); err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			next, err := cron.Next(sch.Cron, now)
			if err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			b.add(q.store.queueSQL("update {schema}.schedules set next = {next} where queue_id = {queue} and name = ?", row, words{"next": at(next)}), []byte(sch.Name))
		}
		return t.finish(ctx, b)
	})
}
