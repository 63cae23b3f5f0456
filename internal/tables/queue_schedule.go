package tables

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
)

// SetSchedule implements driver.QueueStore. If it changes a schedule and not its times, jobs that were due stay due.
func (s *Queues) SetSchedule(ctx context.Context, sch penstock.Schedule) error {
	if err := cmp.Or(sch.Validate(), ValidateJob(&sch.Job, false)); err != nil {
		return err
	}
	next, err := cron.Next(sch.Cron, time.Now())
	if err != nil {
		return err
	}
	sch.Job.Headers = sch.Job.AllHeaders()
	job, err := json.Marshal(sch.Job)
	if err != nil {
		return err
	}
	return s.locked(ctx, sch.Queue, func(tx Tx, q *QueueRow) error { // else a schedule of a queue that is being dropped would stay
		return tx.Finish(ctx, new(Batch).Do("set_schedule", q.Args(Args{"name": sch.Name, "cron": sch.Cron, "next": next, "job": job, "skip": sch.SkipOverlap})))
	})
}

// DropSchedule implements driver.QueueStore.
func (s *Queues) DropSchedule(ctx context.Context, name, schedule string) error {
	if _, err := s.lookAgain(ctx, name); err != nil {
		return err
	}
	var n int64
	err := s.send(ctx, name, func(b *Batch, q *QueueRow) {
		b.Counted(&n, "delete from {schema}.schedules where queue_id = {queue} and name = {name}", q.Args(Args{"name": schedule}))
	})
	if err == nil && n == 0 {
		return NoSchedule(name, schedule)
	}
	return err
}

// PauseSchedule implements driver.QueueStore.
func (s *Queues) PauseSchedule(ctx context.Context, name, schedule string) error {
	return s.onSchedule(ctx, name, schedule, func(_ Tx, b *Batch, sch *penstock.Schedule, these Args) error {
		b.Do("update {schema}.schedules set paused = {paused}"+ofSchedule, these.With(Args{"paused": true}))
		return nil
	})
}

// ResumeSchedule implements driver.QueueStore.
func (s *Queues) ResumeSchedule(ctx context.Context, name, schedule string) error {
	return s.onSchedule(ctx, name, schedule, func(_ Tx, b *Batch, sch *penstock.Schedule, these Args) error {
		next, err := cron.Next(sch.Cron, time.Now())
		if sch.Next.After(next) || !sch.Paused {
			next = sch.Next
		}
		b.Do("update {schema}.schedules set paused = {paused}, next = {next}"+ofSchedule, these.With(Args{"paused": false, "next": next.UTC()}))
		return err
	})
}

// RunSchedule implements driver.QueueStore.
func (s *Queues) RunSchedule(ctx context.Context, name, schedule string) (made penstock.Enqueued, err error) {
	err = s.onSchedule(ctx, name, schedule, func(tx Tx, b *Batch, sch *penstock.Schedule, these Args) error {
		made, err = s.runSchedule(ctx, tx, b, sch, these)
		return err
	})
	return made, err
}

const ofSchedule = " where queue_id = {queue} and name = {name}"

// onSchedule does something to a schedule, whose row is locked.
func (s *Queues) onSchedule(ctx context.Context, name, schedule string, do func(tx Tx, b *Batch, sch *penstock.Schedule, these Args) error) error {
	if _, err := s.lookAgain(ctx, name); err != nil {
		return err
	}
	return s.in(ctx, name, func(tx Tx, q *QueueRow) error {
		found, err := s.readSchedules(ctx, tx, q, "and name = {name} for update", Args{"name": schedule})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return NoSchedule(name, schedule)
		}
		b := &Batch{}
		if err := do(tx, b, &found[0], q.Args(Args{"name": schedule})); err != nil {
			return err
		}
		return tx.Finish(ctx, b)
	})
}

// runSchedule enqueues the job of a schedule, and notes it as the last one.
func (s *Queues) runSchedule(ctx context.Context, tx Tx, b *Batch, sch *penstock.Schedule, these Args) (penstock.Enqueued, error) {
	made, err := s.on.EnqueueIn(ctx, tx, sch.Queue, sch.Job)
	if err != nil {
		return penstock.Enqueued{}, fmt.Errorf("schedule %q: %w", sch.Name, err)
	}
	b.Do("update {schema}.schedules set last_job = {job}"+ofSchedule, these.With(Args{"job": made[0].ID}))
	return made[0], nil
}

// Schedules implements driver.QueueStore.
func (s *Queues) Schedules(ctx context.Context, name string) ([]penstock.Schedule, error) {
	q, err := s.lookAgain(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.readSchedules(ctx, s.on, q, "order by name", nil)
}

func (s *Queues) readSchedules(ctx context.Context, on Runner, q *QueueRow, which string, args Args) (all []penstock.Schedule, err error) {
	return all, on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		sch := penstock.Schedule{Queue: q.Name}
		var job []byte
		if err := scan(&sch.Name, &sch.Cron, &sch.Next, &job, &sch.Paused, &sch.SkipOverlap, &sch.LastJob); err != nil {
			return err
		}
		sch.Next = sch.Next.UTC()
		err := json.Unmarshal(job, &sch.Job)
		sch.Job.ReadHeaders()
		all = append(all, sch)
		return err
	}, "select name, cron, next, job, paused, skip_overlap, last_job from {schema}.schedules where queue_id = {queue} "+which, q.Args(args)))
}

// runSchedules enqueues the periodic jobs that are due, one of each, and returns when they are next. The rows are locked: of
// several processes one does it. A schedule that another version has taken and this one refuses is left out: it keeps no other one from running.
func (q Queue) runSchedules(ctx context.Context) error {
	var refused error
	err := q.in(ctx, q.name, func(tx Tx, row *QueueRow) error {
		now := time.Now()
		due, err := q.readSchedules(ctx, tx, row, "and next <= {by} and not paused order by name for update", Args{"by": now.UTC()})
		if err != nil {
			return err
		}
		b := &Batch{}
		refused = nil
		for i := range due {
			sch := &due[i]
			next, err := cron.Next(sch.Cron, now)
			if err != nil {
				refused = cmp.Or(refused, fmt.Errorf("schedule %q: %v", sch.Name, err)) // no *FieldError, which would end the worker
				continue
			}
			these := row.Args(Args{"name": sch.Name})
			if overlaps, err := q.overlaps(ctx, tx, row, sch); err != nil {
				return err
			} else if !overlaps {
				_, err := q.runSchedule(ctx, tx, b, sch, these)
				if _, is := errors.AsType[*penstock.FieldError](err); is {
					refused = cmp.Or(refused, errors.New(err.Error()))
				} else if err != nil {
					return err
				}
			}
			b.Do("update {schema}.schedules set next = {next}"+ofSchedule, these.With(Args{"next": next.UTC()}))
		}
		return tx.Finish(ctx, b)
	})
	return cmp.Or(err, refused)
}

// overlaps reports whether a schedule leaves out this time, because its last job has not ended.
func (q Queue) overlaps(ctx context.Context, tx Tx, row *QueueRow, sch *penstock.Schedule) (there bool, err error) {
	if !sch.SkipOverlap || sch.LastJob == 0 {
		return false, nil
	}
	b := new(Batch).Rows(func(Scan) error { there = true; return nil }, "job_there", row.Args(Args{"job": sch.LastJob}))
	return there, tx.Run(ctx, b)
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
