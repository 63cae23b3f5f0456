package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
)

// DeadJobs implements penstock.QueueStore.
func (s *Store) DeadJobs(ctx context.Context, q penstock.DeadJobQuery) ([]penstock.DeadJob, error) {
	row, err := s.findQueue(ctx, q.Queue)
	if err != nil {
		return nil, err
	}
	dead, err := s.deadJobs(ctx, s, row, q, "")
	return dead, s.explain(orNoQueue(err, q.Queue))
}

func (s *Store) deadJobs(ctx context.Context, on runner, row *queueRow, q penstock.DeadJobQuery, lock string) (dead []penstock.DeadJob, err error) {
	where, args := "", []any(nil)
	and := func(wanted bool, text string, arg any) {
		if wanted {
			where, args = where+" and "+text, append(args, arg)
		}
	}
	if len(q.IDs) > 0 {
		where = " and d.seq in (" + list(q.IDs) + ")"
	}
	and(q.Key != "", "d.`key` = ?", []byte(q.Key))
	and(q.Group != "", "t.group_key = ?", []byte(q.Group))
	and(q.Error != "", "locate(?, d.error) > 0", []byte(q.Error))
	and(!q.DiedBefore.IsZero(), "d.died_at < ?", q.DiedBefore.UTC())
	and(!q.DiedAfter.IsZero(), "d.died_at > ?", q.DiedAfter.UTC())
	if q.Limit > 0 {
		lock = fmt.Sprintf("limit %d %s", q.Limit, lock)
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var d penstock.DeadJob
		var h pg.History
		var headers, failures []byte
		j := &d.Job
		if err := rows.Scan(&j.ID, &j.Group, &j.Priority, &j.CreatedAt, &j.Key, &headers, &j.Payload, &j.Attempt, &failures, &d.At); err != nil {
			return err
		}
		if err := parseHeaders(headers, &j.Headers); err != nil {
			return err
		}
		err := h.Parse(failures)
		d.Failures = h.Failures
		dead = append(dead, d)
		return err
	}, s.queueSQL("dead_jobs", row, words{"after": q.AfterID, "where": where, "limit": lock}), args...)
	return dead, on.run(ctx, b)
}

// RetryDeadJobs implements penstock.QueueStore.
func (s *Store) RetryDeadJobs(ctx context.Context, q penstock.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, "revive_tries", "revive_jobs")
}

// DiscardDeadJobs implements penstock.QueueStore.
func (s *Store) DiscardDeadJobs(ctx context.Context, q penstock.DeadJobQuery) (int, error) {
	return s.takeDeadJobs(ctx, q, "delete from {jobs} where seq in ({seqs})")
}

// takeDeadJobs deletes the chosen ones, after something was done with them.
func (s *Store) takeDeadJobs(ctx context.Context, q penstock.DeadJobQuery, first ...string) (n int, err error) {
	err = s.inQueue(ctx, q.Queue, func(t *tx, row *queueRow) error {
		dead, err := s.deadJobs(ctx, t, row, q, "for update")
		if n = len(dead); err != nil || n == 0 {
			return err
		}
		seqs := make([]int64, n)
		for i := range dead {
			seqs[i] = dead[i].Job.ID
		}
		b := &batch{}
		for _, statement := range append(first, "delete from {schema}.dead_jobs where queue_id = {queue} and seq in ({seqs})") {
			b.add(s.queueSQL(statement, row, words{"seqs": list(seqs)}))
		}
		return t.finish(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
