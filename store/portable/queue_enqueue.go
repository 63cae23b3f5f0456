package portable

import (
	"context"
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
	n := newJobs{}
	dedup, err := tables.HasDedup(jobs, false)
	if err != nil {
		return nil, err
	}
	made, complete := make([]penstock.Enqueued, len(jobs)), func() error { return nil }
	if dedup {
		if jobs, complete, err = q.sift(ctx, tx, jobs, made, ours); err != nil {
			return nil, q.store.orNoQueue(err, q.name)
		}
	}
	var at []int
	for i := range jobs {
		if made[i].Deduplicated {
			continue
		}
		n.add(&jobs[i], made[i].ID)
		at = append(at, i)
	}
	if len(at) == 0 {
		return made, complete()
	}
	rows, _ := tx.Query(ctx, q.store.enqueueSQL(q.name), n.seqs, n.groups, n.priorities, n.notBefore, n.keys, n.headers, n.payloads)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, q.store.orNoQueue(err, q.name)
	}
	for k, i := range at {
		made[i].ID = ids[k]
	}
	return made, complete()
}

// newJobs are columns.
type newJobs struct {
	seqs          []*int64
	groups        []string
	priorities    []int16
	notBefore     []*time.Time
	keys, headers []*string
	payloads      [][]byte
}

func (n *newJobs) add(j *penstock.NewJob, seq int64) {
	var number *int64
	if seq != 0 {
		number = &seq
	}
	headers := tables.HeadersText(j.AllHeaders())
	payload := tables.NotNil(j.Payload)
	n.seqs, n.groups, n.priorities = append(n.seqs, number), append(n.groups, j.Group), append(n.priorities, int16(j.Priority))
	n.notBefore = append(n.notBefore, tables.OrNull(j.NotBefore.Add(time.Microsecond-1).Truncate(time.Microsecond))) // never too early
	if j.NotBefore.IsZero() {
		n.notBefore[len(n.notBefore)-1] = nil
	}
	n.keys, n.headers, n.payloads = append(n.keys, orNull(j.Key)), append(n.headers, headers), append(n.payloads, payload)
}

// sift finds out which jobs are there already. It returns them with what must be written of each, and a function that completes made after that.
func (q *Queue) sift(ctx context.Context, tx pgx.Tx, jobs []penstock.NewJob, made []penstock.Enqueued, ours bool) ([]penstock.NewJob, func() error, error) {
	var id, window int64
	var level string
	if err := tx.QueryRow(ctx, q.store.sql("select id, dedup_window, current_setting('transaction_isolation') from {schema}.queues where name = $1", ""), q.name).Scan(&id, &window, &level); err != nil {
		return nil, nil, err
	}
	if err := q.siftDedup(ctx, tx, id, window, jobs, made); err != nil {
		return nil, nil, err
	}
	was := slices.Clone(made)
	on := tables.Twins{Tx: pgTx{tx, q.store}, Args: tables.Args{"queue": id, "jobs": tables.SQL(q.store.jobsTable(q.name))}}
	if !ours {
		on.Stale = q.store.stale(level)
	}
	written, united, err := on.Unite(ctx, jobs, made)
	return written, func() error {
		united()
		b := &tables.Batch{}
		for i := range made { // the job of a dedup key is another one that has its unique key
			if written[i].DedupKey != "" && !was[i].Deduplicated && made[i].ID != was[i].ID {
				for k := range made {
					if was[k].Deduplicated && was[k].ID == was[i].ID {
						made[k].ID = made[i].ID
					}
				}
				b.Do("update {schema}.dedup set seq = {job} where queue_id = {queue} and dedup_key = {key}", on.Args.With(tables.Args{"job": made[i].ID, "key": written[i].DedupKey}))
			}
		}
		return on.Tx.Run(ctx, b)
	}, err
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

// siftDedup draws the ids of jobs if any has a DedupKey, and finds out which are there already.
func (q *Queue) siftDedup(ctx context.Context, tx pgx.Tx, id, window int64, jobs []penstock.NewJob, made []penstock.Enqueued) error {
	if !slices.ContainsFunc(jobs, func(j penstock.NewJob) bool { return j.DedupKey != "" }) {
		return nil
	}
	rows, _ := tx.Query(ctx, q.store.sql("select nextval({ids}) from generate_series(1, $1::integer)", ""), len(jobs))
	drawn, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	d := tables.NewDedup(jobs, drawn)
	if _, err := tx.Exec(ctx, q.store.sql("note_dedup", ""), id, d.Keys, d.Seqs, window/1000); err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, q.store.sql("select d.dedup_key, d.seq from (select $1::bigint as queue, unnest($2::text[]) as key) k join {schema}.dedup d on d.queue_id = any (array[k.queue]) and d.dedup_key = k.key", ""), id, d.Keys); err != nil {
		return err
	}
	var key string
	var seq int64
	known := map[string]int64{}
	if _, err := pgx.ForEachRow(rows, []any{&key, &seq}, func() error { known[key] = seq; return nil }); err != nil {
		return err
	}
	d.Made(jobs, known, made)
	return nil
}

func (s onTables) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) (made []penstock.Enqueued, err error) {
	dedup, err := tables.HasDedup(jobs, false)
	if err != nil {
		return nil, err
	}
	if !dedup {
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
	n := newJobs{}
	for i := range jobs {
		n.add(&jobs[i], 0)
	}
	var ids []int64
	note := tables.Noting{
		Text: "insert into {schema}.attempts (attempt, numbers) select {attempt}, array_agg(nextval({ids})) from generate_series(1, {count}::integer)", Args: tables.Args{"count": len(jobs)},
		Read: func(scan tables.Scan) error { return scan(&ids) },
	}
	text := strings.Replace(s.enqueueSQL(queue), "$1::bigint[]", s.sql("(select a.numbers from {schema}.attempts a where a.attempt = $1)", ""), 1)
	err := s.attempts.Once(ctx, s, &s.retries, note, func(number int64, first *tables.Batch) error {
		ids = nil
		b := s.pgBatch(first)
		b.Queue(text, number, n.groups, n.priorities, n.notBefore, n.keys, n.headers, n.payloads).Query(each(tables.All(&ids)))
		return s.send(ctx, b)
	})
	if err != nil {
		return nil, s.explain(s.orNoQueue(err, queue))
	}
	made := make([]penstock.Enqueued, len(jobs))
	for i, id := range ids {
		made[i].ID = id
	}
	return made, nil
}

func (s *Store) enqueueSQL(queue string) string {
	text, _ := s.rendered("enqueue", tables.Args{"jobs": tables.SQL(s.jobsTable(queue))})
	return text
}
