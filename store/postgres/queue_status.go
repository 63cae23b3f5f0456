package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// QueueStatus implements penstock.QueueStore: of an operator's queues, if the role is
// no more than that. It counts jobs by reading them: about a second for some millions.
func (s *Store) QueueStatus(ctx context.Context) ([]penstock.QueueStatus, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, "select name, lifo, paused, max_attempts, coalesce(max_running, 0), (extract(epoch from dedup_window) * 1000000)::bigint from "+
		s.table("_queue")+" where has_function_privilege(to_regprocedure("+s.table("_q")+"('_' || name || '.status') || '()'), 'execute') order by name collate \"C\"")
	if err != nil {
		return nil, s.explain(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (penstock.QueueStatus, error) {
		var (
			one                     penstock.QueueStatus
			lifo, paused            bool
			maxAttempts, maxRunning int
			windowMicros            int64
		)
		err := row.Scan(&one.Queue, &lifo, &paused, &maxAttempts, &maxRunning, &windowMicros)
		window := time.Duration(windowMicros) * time.Microsecond
		one.Order = penstock.FIFO
		if lifo {
			one.Order = penstock.LIFO
		}
		one.QueueSettings = penstock.QueueSettings{Paused: &paused, MaxAttempts: &maxAttempts, MaxRunning: &maxRunning, DedupWindow: &window}
		return one, err
	})
	if err != nil {
		return nil, s.explain(err)
	}
	there := make([]penstock.QueueStatus, 0, len(all))
	for i := range all {
		switch err := s.countJobs(ctx, &all[i]); {
		case err == nil:
			there = append(there, all[i])
		case sqlState(err) == "42P01": // dropped meanwhile
		default:
			return nil, s.explain(err)
		}
	}
	return there, nil
}

func (s *Store) countJobs(ctx context.Context, status *penstock.QueueStatus) error {
	rows, err := s.pool.Query(ctx, "select slot, pg_total_relation_size(oid), slot = pg_sequence_last_value($2::text::regclass) % 1024 from "+
		s.table("_segments")+"($1) order by slot", status.Queue, pgx.Identifier{s.schema, "_" + status.Queue + ".ring"}.Sanitize())
	if err != nil {
		return err
	}
	status.Segments, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (seg penstock.SegmentStatus, err error) {
		return seg, row.Scan(&seg.Slot, &seg.Bytes, &seg.Current)
	})
	if err != nil {
		return err
	}
	for _, seg := range status.Segments {
		status.Bytes += seg.Bytes
	}
	var age float64
	if err := s.pool.QueryRow(ctx, "select ready, running, delayed, waiting, dead, extract(epoch from oldest)::float8 from "+s.table("queue_status")+"($1)", status.Queue).
		Scan(&status.Ready, &status.Running, &status.Delayed, &status.Waiting, &status.DeadLetters, &age); err != nil {
		return err
	}
	status.OldestAge = time.Duration(age * float64(time.Second))
	return nil
}
