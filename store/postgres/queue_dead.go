package postgres

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/pg"
)

// The actions of dead_jobs.sql on the dead letters that it has chosen. The functions
// raise an error if there is no such queue.
const (
	listDeadJobs = `select d.id, d.key, d.group_key, d.priority, d.attempt, least(greatest(d.created_at, '0001-01-01Z'), '9999-12-31Z'), d.headers, d.payload, d.failures, least(greatest(d.died_at, '0001-01-01Z'), '9999-12-31Z')
		from (select d.*, sum(octet_length(d.payload)) over (order by d.id) - octet_length(d.payload) as bytes from chosen join {schema}._dead_job d using (queue, id)) d
		where d.bytes < coalesce(nullif({bytes}, 0), d.bytes + 1) order by d.id`
	retryDeadJobs   = `select {schema}.retry_dead_jobs($1, array(select id from chosen order by id))`
	discardDeadJobs = `select {schema}.discard_dead_jobs($1, array(select id from chosen order by id))`
)

// countCauses counts the rows that dead_jobs.sql or dead_letters.sql has chosen, which has causeColumns: to join them with their table
// would read all of it.
const (
	causeColumns = ", failures, died_at"
	countCauses  = `select coalesce(failures -> -1 ->> 'error', ''), count(*), min(died_at), max(died_at) from chosen group by 1 order by 2 desc`
)

// deadJobs makes the statement and its parameters.
func (s *Store) deadJobs(q admin.DeadJobQuery, action string) (sql string, args []any) {
	limit := int64(math.MaxInt64)
	if q.Limit > 0 {
		limit = int64(q.Limit)
	}
	sql = fillIn(statement("dead_jobs", s.schema, q.Queue), s.schema, action, "")
	return sql, []any{q.Queue, orNullSlice(q.IDs), orNull(q.Key), orNull(q.Group), orNull(q.Error),
		orNullTime(q.DiedBefore), orNullTime(q.DiedAfter), q.AfterID, limit, orNull(q.Kind)}
}

// fillIn puts the action on the chosen ones into a statement.
func fillIn(sql, schema, action, lock string) string {
	columns := ""
	if action == countCauses {
		columns = causeColumns
	}
	return strings.NewReplacer("{columns}", columns, "{lock}", lock, "{action}", strings.ReplaceAll(action, "{schema}", pgx.Identifier{schema}.Sanitize())).Replace(sql)
}

// DeadJobs implements driver.QueueStore.
func (s *Store) DeadJobs(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadJob, error) {
	// Row-level security would show another role's queue as one without dead letters.
	if err := s.mayCall(ctx, q.Queue, "count", "null"); err != nil {
		return nil, err
	}
	sql, args := s.deadJobs(q, strings.ReplaceAll(listDeadJobs, "{bytes}", strconv.Itoa(q.Bytes)))
	dead, err := list(ctx, s.pool, func(row pgx.CollectableRow) (d admin.DeadJob, err error) {
		var (
			h                 pg.History
			j                 = &d.Job
			headers, failures []byte
		)
		if err := row.Scan(&j.ID, (*zeronull.Text)(&j.Key), &j.Group, &j.Priority, &j.Attempt, &j.CreatedAt, &headers, &j.Payload, &failures, &d.At); err != nil {
			return d, err
		}
		j.CreatedAt, d.At = j.CreatedAt.UTC(), d.At.UTC()
		if len(headers) > 0 {
			j.Headers, err = decodeHeaders(headers)
			j.Headers, j.Report = withoutReport(j.Headers)
		}
		h.Parse(failures)
		d.Failures = withUnread(h.Failures, j.Attempt, err)
		return d, nil
	}, sql, args...)
	return dead, s.queueError(ctx, q.Queue, err)
}

// withUnread adds to the failures of a dead letter why its headers cannot be read, which were written by hand.
func withUnread(failures []penstock.Failure, attempt int, err error) []penstock.Failure {
	if err == nil {
		return failures
	}
	return append(failures, penstock.Failure{Attempt: attempt, Err: "the headers cannot be read: " + err.Error()})
}

// DeadJobCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) ([]admin.DeadCause, error) {
	if err := s.mayCall(ctx, q.Queue, "count", "null"); err != nil {
		return nil, err
	}
	sql, args := s.deadJobs(q, countCauses)
	found, err := s.causes(ctx, sql, args)
	return found, s.queueError(ctx, q.Queue, err)
}

func (s *Store) causes(ctx context.Context, sql string, args []any) ([]admin.DeadCause, error) {
	return list(ctx, s.pool, func(row pgx.CollectableRow) (c admin.DeadCause, err error) {
		err = row.Scan(&c.Error, &c.Letters, &c.First, &c.Last)
		c.First, c.Last = c.First.UTC(), c.Last.UTC()
		return c, err
	}, sql, args...)
}

// RetryDeadJobs implements driver.QueueStore.
func (s *Store) RetryDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	action := retryDeadJobs
	if q.OnlyIDs() { // jobs that wait for their next attempt are not chosen
		action = `select {schema}.retry_dead_jobs($1, $2)`
	}
	return s.changeDeadJobs(ctx, q, action)
}

// DiscardDeadJobs implements driver.QueueStore.
func (s *Store) DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return s.changeDeadJobs(ctx, q, discardDeadJobs)
}

func (s *Store) changeDeadJobs(ctx context.Context, q admin.DeadJobQuery, action string) (n int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	sql, args := s.deadJobs(q, action)
	err = s.pool.QueryRow(ctx, sql, args...).Scan(&n)
	return n, s.queueError(ctx, q.Queue, err)
}

// mayCall is the error of a call of a queue's function if this role may not make it, or
// if there is no such queue. EXPLAIN looks at both, and calls nothing.
func (s *Store) mayCall(ctx context.Context, queue, function, args string) error {
	return s.onQueue(ctx, queue, "explain select "+s.table("_"+queue+"."+function)+"("+args+")")
}

// hasQueue is ErrNoQueue if there is none of that name.
func (s *Store) hasQueue(ctx context.Context, name string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	var found bool
	if err := s.pool.QueryRow(ctx, "select exists (select from "+s.table("_queue")+" where name = $1)", name).Scan(&found); err != nil {
		return s.explain(err)
	}
	if !found {
		return noQueue(name)
	}
	return nil
}
