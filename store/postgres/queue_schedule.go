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
// same Cron keeps its next time. The job's NotBefore is ignored.
func (s *Store) SetSchedule(ctx context.Context, set penstock.Schedule) error {
	if err := set.Validate(); err != nil {
		return err
	}
	j := &set.Job
	headers, err := encodeHeaders(j.AllHeaders())
	if err != nil {
		return err
	}
	err = s.onQueue(ctx, set.Queue, "select "+s.table("schedule_bytes")+"($1, $2, $3, $4, key => $5, group_key => $6, priority => $7, headers => $8, dedup_key => $9)",
		set.Queue, set.Name, set.Cron, notNil(j.Payload), orNull(j.Key), j.Group, j.Priority, headers, orNull(j.DedupKey))
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "22023" {
		return &penstock.FieldError{Field: "cron", Problem: strings.TrimPrefix(pg.Message, "the cron text "), Hint: pg.Hint}
	}
	return err
}

// DropSchedule implements driver.QueueStore.
func (s *Store) DropSchedule(ctx context.Context, queue, name string) error {
	err := s.onQueue(ctx, queue, "select "+s.table("unschedule")+"($1, $2)", queue, name)
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
	rows, err := s.pool.Query(ctx, "select s.name, s.cron, s.next, s.priority, s.group_key, s.key, coalesce(s.dedup_key, ''), s.headers, s.payload from "+s.table("_schedule")+" s join "+
		s.table("_queue")+" q on q.id = s.queue where q.name = $1 order by s.name collate \"C\"", queue)
	if err != nil {
		return nil, s.queueError(ctx, queue, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (penstock.Schedule, error) {
		var (
			one     = penstock.Schedule{Queue: queue}
			j       = &one.Job
			key     *string
			headers []byte
		)
		err := row.Scan(&one.Name, &one.Cron, &one.Next, &j.Priority, &j.Group, &key, &j.DedupKey, &headers, &j.Payload)
		if err != nil {
			return one, err
		}
		if key != nil {
			j.Key = *key
		}
		one.Next = one.Next.UTC()
		if len(headers) > 0 {
			j.Headers, err = decodeHeaders(headers)
			j.Kind = j.Headers[penstock.HeaderKind]
		}
		return one, err
	})
	return all, s.queueError(ctx, queue, err)
}
