package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/shell"
)

// Queue is one queue, to enqueue jobs and to work on them. Each call of a worker is one round trip and one transaction
// on a connection of the store's pool. The pool hands out the connection that was used last, so a single claimer always
// has the same one. Statements are prepared once per connection. Safe for concurrent use.
type Queue struct {
	store       *Store
	name        string
	enqueue     string // one job, which costs less than an array of one
	enqueueMany string
	manyOf      string // the function's name
	// The same for jobs with dedup keys or unique keys, and the name of the function that returns the result of these.
	enqueueOnce     string
	enqueueManyOnce string
	deduplicated    string
	dequeue         string
	dequeueNext     string // one job of the group "", by the queue's own function

	// claim and ack, which every job goes through, also call the queue's own functions: those that
	// take a queue's name cost a tenth more.
	claim, claimGroups, ready, extend, ack, release, retry, deadLetter, report, maintain string
}

// Name is for the log of its workers.
func (q *Queue) Name() string { return q.name }

// Queue returns a queue. It does not check that there is one.
func (s *Store) Queue(name string) *Queue {
	own := s.table
	one, many, deduplicated := own("_"+name+".enqueue"), own("_"+name+".enqueue_many"), own("deduplicated")
	return &Queue{
		store:           s,
		name:            name,
		enqueue:         "select " + one + "($1, $2, $3, $4, $5, $6, $7)",
		enqueueMany:     "select * from " + many + "($1, $2, $3, $4, $5, $6, $7)",
		manyOf:          many,
		enqueueOnce:     "select e.id, " + deduplicated + "() from " + one + "($1, $2, $3, $4, $5, $6, $7) e(id)",
		enqueueManyOnce: "select e.id, " + deduplicated + "(e.n) from " + many + "($1, $2, $3, $4, $5, $6, $7) with ordinality e(id, n)",
		deduplicated:    deduplicated,
		dequeue:         "select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt + 1, t.created_at, t.headers, t.payload from " + own("_"+name+".take") + "($1, $2) t",
		dequeueNext:     "select " + takenColumns + " from " + own("dequeue_"+name) + "()",
		claim:           leasedColumns + own("_"+name+".claim") + "($1, $2, $3, $4, $5)",
		claimGroups: leasedColumns + "unnest($1::int[], $3::text[]) with ordinality g(n, in_group, i) cross join lateral " +
			own("_"+name+".claim") + "(g.n, $2, g.in_group, $4, case when g.i = 1 then $5::bigint[] else '{}' end)",
		ready:      "select * from " + own("_"+name+".ready") + "($1, $2, $3)",
		extend:     "select * from " + own("extend_many") + "($1, $2, $3)",
		ack:        "select * from " + own("_"+name+".ack") + "($1)",
		release:    "select * from " + own("release_many") + "($1, $2, $3)",
		retry:      "select " + own("retry") + "($1, $2, $3, $4)",
		deadLetter: "select " + own("dead_letter") + "($1, $2, $3)",
		report:     "select " + own("report") + "($1, $2, $3)",
		maintain:   "select " + own("maintain_queue") + "($1)",
	}
}

const leasedColumns = "select id, key, group_key, priority, attempt, created_at, headers, payload, lease, lease_until from "

const takenColumns = "id, key, group_key, priority, attempt, created_at, headers, payload"

// EnqueueTx writes jobs within tx, in one round trip, and returns a result for each, in the
// given order. They can run if tx commits, and never if it rolls back. Errors: ErrNoQueue,
// and *penstock.FieldError for a job that cannot be carried. In the latter case nothing is
// written and tx can continue.
func (q *Queue) EnqueueTx(ctx context.Context, tx pgx.Tx, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	return q.write(ctx, tx, jobs)
}

// write is EnqueueTx, for jobs that are known to be good, on a transaction or on a pool, where the statement is the transaction.
func (q *Queue) write(ctx context.Context, on querier, jobs []penstock.NewJob) ([]penstock.Enqueued, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if b, ok := on.(*BufferedTx); ok {
		pending, err := b.Enqueue(ctx, q, jobs...)
		if err != nil {
			return nil, err
		}
		return pending.Enqueued(ctx)
	}
	query, args, err := q.callFor(jobs)
	if err != nil {
		return nil, err
	}
	rows, _ := on.Query(ctx, query, args...)
	made, err := collectEnqueued(rows, len(jobs))
	return made, q.refused(ctx, err, "enqueue")
}

// callFor is the statement that writes jobs, and its parameters.
func (q *Queue) callFor(jobs []penstock.NewJob) (string, []any, error) {
	if len(jobs) == 1 {
		j := &jobs[0]
		headers, err := encodeHeaders(j.AllHeaders())
		query := q.enqueue
		if j.Deduplicates() {
			query = q.enqueueOnce
		}
		return query, []any{notNil(j.Payload), orNull(j.Key), j.Group, j.Priority, orNullTime(j.NotBefore), orNull(j.DedupKey), headers}, err
	}
	var c jobColumns
	for i := range jobs {
		if err := c.add(&jobs[i], len(jobs)); err != nil {
			return "", nil, jobAt(err, i, len(jobs))
		}
	}
	query := q.enqueueMany
	if c.deduplicates {
		query = q.enqueueManyOnce
	}
	return query, []any{c.payloads, c.keys, c.groups, c.priorities, c.notBefores, c.dedupKeys, c.headers}, nil
}

// jobColumns are jobs as enqueue_many takes them: an array per column, or nil if no job has a
// value.
type jobColumns struct {
	payloads        [][]byte
	keys, dedupKeys []*string
	groups          []string
	priorities      []int32
	notBefores      []*time.Time
	headers         []*string
	deduplicates    bool // one of them does
}

func (c *jobColumns) add(j *penstock.NewJob, most int) error {
	headers, err := encodeHeaders(j.AllHeaders())
	if err != nil {
		return err
	}
	at := len(c.payloads)
	c.payloads = append(c.payloads, notNil(j.Payload)) // nil would be NULL
	put(&c.keys, at, most, orNull(j.Key), j.Key != "")
	put(&c.groups, at, most, j.Group, j.Group != "")
	put(&c.priorities, at, most, int32(j.Priority), j.Priority != 0)
	put(&c.notBefores, at, most, orNullTime(j.NotBefore), !j.NotBefore.IsZero())
	put(&c.dedupKeys, at, most, orNull(j.DedupKey), j.DedupKey != "")
	c.deduplicates = c.deduplicates || j.Deduplicates()
	put(&c.headers, at, most, headers, headers != nil)
	return nil
}

// put sets column[at]. A column begins with the first value that is none of the
// zero ones.
func put[T any](column *[]T, at, most int, v T, is bool) {
	if *column == nil {
		if !is {
			return
		}
		*column = make([]T, most)
	}
	(*column)[at] = v
}

// EnqueueSQL is EnqueueTx for database/sql, with any PostgreSQL driver. One round trip
// per 1,000 jobs.
func (q *Queue) EnqueueSQL(ctx context.Context, tx SQLTx, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if err := validJobs(jobs); err != nil {
		return nil, err
	}
	if b, ok := tx.(*BufferedSQLTx); ok {
		pending, err := b.Enqueue(ctx, q, jobs...)
		if err != nil {
			return nil, err
		}
		return pending.Enqueued(ctx)
	}
	const most = 1000
	made := make([]penstock.Enqueued, 0, len(jobs))
	for start := 0; start < len(jobs); start += most {
		query, args, err := q.valuesOf(jobs[start:min(start+most, len(jobs))])
		if err != nil {
			return nil, err
		}
		if err := eachSQL(ctx, tx, func(scan func(...any) error) error {
			var m penstock.Enqueued
			err := scan(&m.ID, &m.Deduplicated)
			made = append(made, m)
			return err
		}, query, args...); err != nil {
			return nil, q.refused(ctx, err, "enqueue")
		}
	}
	return made, nil
}

// valuesOf makes a call of enqueue_many out of parameters that every driver has.
func (q *Queue) valuesOf(jobs []penstock.NewJob) (string, []any, error) {
	const columns = 7
	args := make([]any, 0, len(jobs)*columns)
	var query strings.Builder
	told := "false"
	if slices.ContainsFunc(jobs, func(j penstock.NewJob) bool { return j.Deduplicates() }) {
		told = q.deduplicated + "(e.n)"
	}
	query.WriteString("select e.id, " + told + " from (select " +
		"array_agg(payload order by n) as payloads, array_agg(key order by n) as keys, array_agg(group_key order by n) as group_keys, " +
		"array_agg(priority order by n) as priorities, array_agg(not_before order by n) as not_befores, " +
		"array_agg(dedup_key order by n) as dedup_keys, array_agg(headers order by n) as headers from (values ")
	for i := range jobs {
		j := &jobs[i]
		headers, err := encodeHeaders(j.AllHeaders())
		if err != nil {
			return "", nil, err
		}
		if i > 0 {
			query.WriteByte(',')
		}
		n := len(args)
		fmt.Fprintf(&query, "(%d,$%d::bytea,$%d::text,$%d::text,$%d::int,$%d::timestamptz,$%d::text,$%d::jsonb)", i, n+1, n+2, n+3, n+4, n+5, n+6, n+7)
		args = append(args, notNil(j.Payload), orNull(j.Key), j.Group, j.Priority, orNullTime(j.NotBefore), orNull(j.DedupKey), headers)
	}
	query.WriteString(") v(n, payload, key, group_key, priority, not_before, dedup_key, headers)) j cross join lateral " + q.manyOf +
		"(j.payloads, j.keys, j.group_keys, j.priorities, j.not_befores, j.dedup_keys, j.headers) with ordinality e(id, n)")
	return query.String(), args, nil
}

// validJobs checks all before the first is written.
func validJobs(jobs []penstock.NewJob) error {
	for i := range jobs {
		if err := jobs[i].Validate(); err != nil {
			return jobAt(err, i, len(jobs))
		}
	}
	return nil
}

// jobAt adds to an error which of several jobs it is about.
func jobAt(err error, i, n int) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("job %d of %d: %w", i+1, n, err)
}

// refused is an error of a call within a transaction, which needs the right.
func (q *Queue) refused(ctx context.Context, err error, right string) error {
	if err == nil {
		return nil
	}
	look, cancel := context.WithTimeout(ctx, shortLook)
	defer cancel()
	if absent := q.store.absent(look, q.name, err); absent != nil {
		return absent
	}
	return lacks(queueError(err, q.name), granted("penstock queue grant "+shell.Word(q.name)+" ROLE --"+right))
}
