package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
)

// SetSchedule implements driver.QueueStore. If it changes a schedule and not its times, jobs that were due stay due.
func (s *Queues) SetSchedule(ctx context.Context, sch penstock.Schedule) error {
	if err := sch.Validate(); err != nil {
		return err
	}
	next, err := cron.Next(sch.Cron, time.Now())
	if err != nil {
		return err
	}
	sch.Job.NotBefore, sch.Job.Headers = time.Time{}, sch.Job.AllHeaders()
	job, err := json.Marshal(sch.Job)
	if err != nil {
		return err
	}
	return s.send(ctx, sch.Queue, func(b *Batch, q *QueueRow) {
		b.Do("set_schedule", q.Args(Args{"name": sch.Name, "cron": sch.Cron, "next": next, "job": job}))
	})
}

// DropSchedule implements driver.QueueStore.
func (s *Queues) DropSchedule(ctx context.Context, name, schedule string) error {
	var n int64
	err := s.send(ctx, name, func(b *Batch, q *QueueRow) {
		b.Counted(&n, "delete from {schema}.schedules where queue_id = {queue} and name = {name}", q.Args(Args{"name": schedule}))
	})
	if err == nil && n == 0 {
		return NoSchedule(name, schedule)
	}
	return err
}

// Schedules implements driver.QueueStore.
func (s *Queues) Schedules(ctx context.Context, name string) ([]penstock.Schedule, error) {
	q, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.readSchedules(ctx, s.on, q, "order by name", nil)
}

func (s *Queues) readSchedules(ctx context.Context, on Runner, q *QueueRow, which string, args Args) (all []penstock.Schedule, err error) {
	b := &Batch{}
	b.Rows(func(scan Scan) error {
		sch := penstock.Schedule{Queue: q.Name}
		var job []byte
		if err := scan(&sch.Name, &sch.Cron, &sch.Next, &job); err != nil {
			return err
		}
		sch.Next = sch.Next.UTC()
		err := json.Unmarshal(job, &sch.Job)
		sch.Job.Kind = sch.Job.Headers[penstock.HeaderKind]
		all = append(all, sch)
		return err
	}, "select name, cron, next, job from {schema}.schedules where queue_id = {queue} "+which, q.Args(args))
	return all, on.Run(ctx, b)
}

// runSchedules enqueues the periodic jobs that are due, one of each, and says when they are next. The rows are locked: of
// several processes one does it.
func (q Queue) runSchedules(ctx context.Context) error {
	return q.in(ctx, q.name, func(tx Tx, row *QueueRow) error {
		now := time.Now()
		due, err := q.readSchedules(ctx, tx, row, "and next <= {by} order by name for update", Args{"by": now.UTC()})
		if err != nil {
			return err
		}
		b := &Batch{}
		for _, sch := range due {
			if err := q.on.EnqueueIn(ctx, tx, q.name, sch.Job); err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			next, err := cron.Next(sch.Cron, now)
			if err != nil {
				return fmt.Errorf("schedule %q: %w", sch.Name, err)
			}
			b.Do("update {schema}.schedules set next = {next} where queue_id = {queue} and name = {name}", row.Args(Args{"next": next.UTC(), "name": sch.Name}))
		}
		return tx.Finish(ctx, b)
	})
}

// correctSchedules makes schedules that ran while a clock was far ahead continue from the present
// time.
func (q Queue) correctSchedules(ctx context.Context, row *QueueRow) error {
	now := time.Now()
	all, err := q.readSchedules(ctx, q.on, row, "and next > {trusted}", Args{"trusted": now.Add(cron.Trust).UTC()})
	if err != nil {
		return err
	}
	b := &Batch{}
	for _, sch := range all {
		if !cron.Ahead(sch.Cron, sch.Next, now) {
			continue
		}
		next, err := cron.Next(sch.Cron, now)
		if err != nil {
			return fmt.Errorf("schedule %q: %w", sch.Name, err)
		}
		b.Do("update {schema}.schedules set next = {next} where queue_id = {queue} and name = {name} and next = {was}",
			row.Args(Args{"next": next.UTC(), "name": sch.Name, "was": sch.Next}))
	}
	if len(*b) == 0 {
		return nil
	}
	return q.on.Send(ctx, func(all *Batch) { *all = append(*all, *b...) })
}
