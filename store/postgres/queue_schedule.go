package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/shell"
)

// SetSchedule implements driver.QueueStore. A schedule that is set again with the
// same Cron keeps its next time.
func (s *Store) SetSchedule(ctx context.Context, set penstock.Schedule) error {
	if err := set.Validate(); err != nil {
		return err
	}
	j := &set.Job
	headers, err := encodeHeaders(j.AllHeaders())
	if err != nil {
		return err
	}
	err = s.onQueue(ctx, set.Queue, "select "+s.table("schedule_bytes")+"($1, $2, $3, $4, key => $5, group_key => $6, priority => $7, headers => $8, dedup_key => $9, skip_overlap => $10)",
		set.Queue, set.Name, set.Cron, notNil(j.Payload), orNull(j.Key), j.Group, j.Priority, headers, orNull(j.DedupKey), set.SkipOverlap)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "22023" {
		return &penstock.FieldError{Field: "cron", Problem: strings.TrimPrefix(pg.Message, "the cron text "), Hint: pg.Hint}
	}
	return lacks(err, onlyOwner)
}

// DropSchedule implements driver.QueueStore.
func (s *Store) DropSchedule(ctx context.Context, queue, name string) error {
	return noSchedule(s.onQueue(ctx, queue, "select "+s.table("unschedule")+"($1, $2)", queue, name), queue, name)
}

// PauseSchedule implements driver.QueueStore.
func (s *Store) PauseSchedule(ctx context.Context, queue, name string) error {
	return noSchedule(s.onQueue(ctx, queue, "select "+s.table("pause_schedule")+"($1, $2)", queue, name), queue, name)
}

// ResumeSchedule implements driver.QueueStore.
func (s *Store) ResumeSchedule(ctx context.Context, queue, name string) error {
	return noSchedule(s.onQueue(ctx, queue, "select "+s.table("resume_schedule")+"($1, $2)", queue, name), queue, name)
}

// RunSchedule implements driver.QueueStore.
func (s *Store) RunSchedule(ctx context.Context, queue, name string) (made penstock.Enqueued, err error) {
	if err := s.ready(ctx); err != nil {
		return made, err
	}
	err = s.pool.QueryRow(ctx, "select e.id, coalesce("+s.table("deduplicated")+"(e.n), false) from "+s.table("run_schedule")+"($1, $2) with ordinality e(id, n)", queue, name).
		Scan(&made.ID, &made.Deduplicated)
	return made, noSchedule(s.queueError(ctx, queue, err), queue, name)
}

// noSchedule makes the contract's error of the server's.
func noSchedule(err error, queue, name string) error {
	if sqlState(err) == "42704" {
		return penstock.WithHint(fmt.Errorf("%w: queue %q has no %q", penstock.ErrNoSchedule, queue, name), "penstock schedule list %s shows those there are", shell.Word(queue))
	}
	return err
}

// Schedules implements driver.QueueStore.
func (s *Store) Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error) {
	if err := s.hasQueue(ctx, queue); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, func(row pgx.CollectableRow) (penstock.Schedule, error) {
		var (
			one     = penstock.Schedule{Queue: queue}
			j       = &one.Job
			headers []byte
		)
		err := row.Scan(&one.Name, &one.Cron, &one.Next, &one.Paused, &one.SkipOverlap, &one.LastJob, &j.Priority, &j.Group, &j.Key, &j.DedupKey, &headers, &j.Payload)
		if err != nil {
			return one, err
		}
		one.Next = one.Next.UTC()
		if len(headers) > 0 {
			j.Headers, err = decodeHeaders(headers)
			j.ReadHeaders()
		}
		return one, err
	}, "select name, cron, next, paused, skip_overlap, coalesce(last_job, 0), priority, group_key, coalesce(key, ''), coalesce(dedup_key, ''), headers, payload from "+s.table("schedules")+"($1)", queue)
	return all, s.queueError(ctx, queue, err)
}
