package tables

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// DeadJobs implements driver.QueueStore.
func (s *Queues) DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error) {
	row, err := s.lookAgain(ctx, q.Queue)
	if err != nil {
		return nil, err
	}
	dead, _, err := s.deadJobs(ctx, s.on, row, q, "")
	return dead, s.orNoQueue(err, q.Queue)
}

// deadJobs are those chosen, and the clock of the database.
func (s *Queues) deadJobs(ctx context.Context, on Runner, row *QueueRow, q admin.DeadJobQuery, lock SQL) (dead []admin.DeadJob, now time.Time, err error) {
	b, bytes := &Batch{}, 0
	b.Row(new(bool), "select {clock}", nil, &now)
	b.Rows(func(scan Scan) error {
		var d admin.DeadJob
		var h pg.History
		var headers, failures, report []byte
		j := &d.Job
		if err := scan(&j.ID, &j.Group, &j.Priority, &j.CreatedAt, &j.Key, &headers, &j.Payload, &j.Attempt, &failures, &d.At, &report); err != nil {
			return err
		}
		if len(report) > 0 {
			j.Report = slices.Clone(report)
		}
		j.Headers, j.CreatedAt, d.At = Headers(headers), j.CreatedAt.UTC(), d.At.UTC()
		h.Parse(failures)
		d.Failures = h.Failures
		if q.Bytes == 0 || bytes < q.Bytes {
			dead = append(dead, d)
		}
		bytes += len(d.Job.Payload)
		return nil
	}, "dead_jobs", row.DeadJobArgs(q).With(Args{"lock": lock}))
	return dead, now, on.Run(ctx, b)
}

// DeadJobArgs choose dead letters.
func (row *QueueRow) DeadJobArgs(q admin.DeadJobQuery) Args {
	most := q.Limit
	if most == 0 {
		most = math.MaxInt64
	}
	return row.Args(Args{"all": len(q.IDs) == 0, "ids": q.IDs, "kind": q.Kind, "key": q.Key, "group": q.Group, "error": q.Error,
		"died_before": OrNull(q.DiedBefore), "died_after": OrNull(q.DiedAfter), "from": q.AfterID, "most": most})
}

// RetryDeadJobs implements driver.QueueStore.
func (s *Queues) RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, true, "revive_tries", "revive_jobs", "delete from {schema}.dead_jobs where queue_id = {queue} and {seq in seqs}")
}

// DiscardDeadJobs implements driver.QueueStore.
func (s *Queues) DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, false, "discard_jobs")
}

// takeDeadJobs runs statements with the chosen ones: of those that are to run again, with those that may. Where ids alone choose, others of the ids that
// are to run again, delayed ones too, have their next attempt now.
func (s *Queues) takeDeadJobs(ctx context.Context, q admin.DeadJobQuery, run bool, statements ...string) (n int, err error) {
	var waited, delayed int64
	if _, err := s.lookAgain(ctx, q.Queue); err != nil {
		return 0, err
	}
	err = s.in(ctx, q.Queue, func(tx Tx, row *QueueRow) error {
		waiting := run && q.OnlyIDs()
		dead, now, err := s.deadJobs(ctx, tx, row, q, "for update")
		if n = 0; err != nil || len(dead) == 0 && !waiting {
			return err
		}
		if run && len(dead) > 0 {
			if dead, err = (Twins{Tx: tx, Args: row.Args(nil)}).mayRevive(ctx, dead); err != nil {
				return err
			}
		}
		n = len(dead)
		b := &Batch{}
		if waiting {
			these := row.Args(Args{"seqs": q.IDs})
			b.Counted(&waited, "retry_now", these).Counted(&delayed, "run_now", these)
		}
		seqs := make([]int64, n)
		for i := range dead {
			seqs[i] = dead[i].Job.ID
		}
		if n == 0 {
			statements = nil
		}
		for _, statement := range statements {
			b.Do(statement, row.Args(Args{"seqs": seqs, "now": now.UTC()}))
		}
		return tx.Finish(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	return n + int(waited+delayed), nil
}
