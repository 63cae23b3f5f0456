package portable

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// Queue is one queue, to enqueue jobs and to work on them. Safe for concurrent use.
type Queue struct {
	tables.WorkedQueue
	store *Store
	name  string
}

// Queue returns a queue. It does not check that there is one.
func (s *Store) Queue(name string) *Queue { return &Queue{s.queues.Queue(name), s, name} }

// EnqueueTx writes jobs within tx and returns a result for each, in the given order. It takes one statement, or four if any job has a
// DedupKey. They run if tx commits, and never if it rolls back. Errors: ErrNoQueue, and *penstock.FieldError for a job that cannot
// be carried. In the latter case nothing is written and tx can continue.
//
// A UniqueKey takes four statements more. Others that enqueue a job with it wait until tx ends, and no claim takes a job that is replaced. Then tx must have
// the isolation level READ COMMITTED, or SERIALIZABLE on YugabyteDB and CockroachDB. The error is 25001 otherwise.
func (q *Queue) EnqueueTx(ctx context.Context, tx pgx.Tx, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return q.write(ctx, tx, jobs, false)
}

// write is EnqueueTx. ours: the transaction is the store's.
func (q *Queue) write(ctx context.Context, tx pgx.Tx, jobs []penstock.NewJob, ours bool) ([]penstock.Enqueued, error) {
	if err := tables.ValidateJobs(jobs, false); err != nil {
		return nil, err
	}
	made, err := tables.Enqueue(ctx, &enqueuing{pgTx: pgTx{tx, q.store}, queue: q.name, ours: ours}, jobs)
	if err != nil {
		return nil, q.store.orNoQueue(err, q.name)
	}
	return made, nil
}

// jobColumns are the jobs at some places, with the numbers that they have, as arguments of the statement.
func jobColumns(jobs []penstock.NewJob, places []int, made []penstock.Enqueued) []any {
	n := len(places)
	seqs, groups, priorities, payloads := make([]*int64, n), make([]string, n), make([]int16, n), make([][]byte, n)
	notBefore, keys, headers := make([]*time.Time, n), make([]*string, n), make([]*string, n)
	for k, i := range places {
		j := &jobs[i]
		if made[i].ID != 0 {
			seqs[k] = &made[i].ID
		}
		if !j.NotBefore.IsZero() {
			notBefore[k] = tables.OrNull(j.NotBefore.Add(time.Microsecond - 1).Truncate(time.Microsecond)) // never too early
		}
		groups[k], priorities[k], keys[k] = j.Group, int16(j.Priority), orNull(j.Key)
		headers[k], payloads[k] = tables.HeadersText(j.AllHeaders()), tables.NotNil(j.Payload)
	}
	return []any{seqs, groups, priorities, notBefore, keys, headers, payloads}
}

// enqueuing is a transaction in which jobs of a queue are written.
type enqueuing struct {
	pgTx
	queue  string
	ours   bool
	id     int64 // of the queue, once it was looked up
	window int64
	level  string
}

func (e *enqueuing) look(ctx context.Context) error {
	if e.id != 0 {
		return nil
	}
	return e.QueryRow(ctx, e.store.sql("select id, dedup_window, current_setting('transaction_isolation') from {schema}.queues where name = $1", ""), e.queue).Scan(&e.id, &e.window, &e.level)
}

// Twins implements tables.Enqueuing.
func (e *enqueuing) Twins(ctx context.Context) (tables.Twins, error) {
	err := e.look(ctx)
	on := tables.Twins{Tx: e.pgTx, Args: tables.Args{"queue": e.id, "jobs": tables.SQL(e.store.jobsTable(e.queue))}}
	if !e.ours {
		on.Stale = e.store.stale(e.level)
	}
	return on, err
}

// Note implements tables.Enqueuing. It draws the numbers of all jobs, so that they are in order.
func (e *enqueuing) Note(ctx context.Context, first map[string]int, made []penstock.Enqueued) (map[string]int64, error) {
	if err := e.look(ctx); err != nil {
		return nil, err
	}
	rows, _ := e.Query(ctx, e.store.sql("select nextval({ids}) from generate_series(1, $1::integer)", ""), len(made))
	drawn, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	for i := range made {
		made[i].ID = drawn[i]
	}
	keys := slices.Collect(maps.Keys(first))
	seqs := make([]int64, len(keys))
	for i, key := range keys {
		seqs[i] = drawn[first[key]]
	}
	if _, err := e.Exec(ctx, e.store.sql("note_dedup", ""), e.id, keys, seqs, e.window/1000); err != nil {
		return nil, err
	}
	if rows, err = e.Query(ctx, e.store.sql("select d.dedup_key, d.seq from (select $1::bigint as queue, unnest($2::text[]) as key) k join {schema}.dedup d on d.queue_id = any (array[k.queue]) and d.dedup_key = k.key", ""), e.id, keys); err != nil {
		return nil, err
	}
	var key string
	var seq int64
	known := map[string]int64{}
	_, err = pgx.ForEachRow(rows, []any{&key, &seq}, func() error {
		if seq != drawn[first[key]] {
			known[key] = seq
		}
		return nil
	})
	return known, err
}

// Noted implements tables.Enqueuing: the job of a dedup key is another one that has its unique key.
func (e *enqueuing) Noted(ctx context.Context, keys []string, ids []int64) error {
	b := &tables.Batch{}
	for i, key := range keys {
		b.Do("update {schema}.dedup set seq = {job} where queue_id = {queue} and dedup_key = {key}", tables.Args{"queue": e.id, "job": ids[i], "key": key})
	}
	return e.Run(ctx, b)
}

// Insert implements tables.Enqueuing.
func (e *enqueuing) Insert(ctx context.Context, jobs []penstock.NewJob, places []int, made []penstock.Enqueued) error {
	rows, _ := e.Query(ctx, e.store.enqueueSQL(e.queue), jobColumns(jobs, places, made)...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for k, i := range places {
		made[i].ID = ids[k]
	}
	return nil
}

// stale is the error of a unique key in a transaction of the caller that may not see what others have enqueued and claimed since it began. Where all claims are
// serializable, one of the two is refused.
func (s *Store) stale(level string) error {
	if level == "read committed" || level == "serializable" && s.dialect().takesTurns {
		return nil
	}
	return penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "25001", Message: "a unique_key needs the isolation level read committed, this transaction is " + level},
		"it does not see what others have enqueued since it began; begin it with: begin isolation level read committed")
}

func (s onTables) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) (made []penstock.Enqueued, err error) {
	if err := tables.ValidateJobs(jobs, false); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(jobs, func(j penstock.NewJob) bool { return j.Deduplicates() }) {
		return s.enqueueAtOnce(ctx, queue, jobs)
	}
	to := s.Store.Queue(queue)
	err = s.explain(s.attempts.Once(ctx, s, &s.retries, tables.Noting{}, func(_ int64, first *tables.Batch) error {
		return s.begin(ctx, func(tx pgx.Tx) (err error) {
			if err = (pgTx{tx, s.Store}).Run(ctx, first); err == nil {
				made, err = to.write(ctx, tx, jobs, true)
			}
			return err
		})
	}))
	if err != nil {
		return nil, err
	}
	return made, nil
}

// enqueueAtOnce enqueues in one round trip. The numbers of the jobs are in the attempt's row, where they are found if the answer is lost.
func (s onTables) enqueueAtOnce(ctx context.Context, queue string, jobs []penstock.NewJob) ([]penstock.Enqueued, error) {
	made, places := make([]penstock.Enqueued, len(jobs)), make([]int, len(jobs))
	for i := range places {
		places[i] = i
	}
	columns := jobColumns(jobs, places, made)
	var ids []int64
	note := tables.Noting{
		Text: "insert into {schema}.attempts (attempt, numbers) select {attempt}, array_agg(nextval({ids})) from generate_series(1, {count}::integer)", Args: tables.Args{"count": len(jobs)},
		Read: func(scan tables.Scan) error { return scan(&ids) },
	}
	text := strings.Replace(s.enqueueSQL(queue), "$1::bigint[]", s.sql("(select a.numbers from {schema}.attempts a where a.attempt = $1)", ""), 1)
	err := s.attempts.Once(ctx, s, &s.retries, note, func(number int64, first *tables.Batch) error {
		ids = nil
		b := s.pgBatch(first)
		columns[0] = number
		b.Queue(text, columns...).Query(each(tables.All(&ids)))
		return s.send(ctx, b)
	})
	if err != nil {
		return nil, s.explain(s.orNoQueue(err, queue))
	}
	for i, id := range ids {
		made[i].ID = id
	}
	return made, nil
}

func (s *Store) enqueueSQL(queue string) string {
	text, _ := s.rendered("enqueue", tables.Args{"jobs": tables.SQL(s.jobsTable(queue))})
	return text
}
