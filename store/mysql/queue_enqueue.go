package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

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

// perInsert is how many jobs one INSERT has at most, of up to a MiB.
const perInsert = 1000

// EnqueueTx writes jobs within tx and returns a result for each, in the given order. It takes one statement for each 1,000 jobs or MiB, and
// four more if any job has a DedupKey. They run if tx commits, and never if it rolls back. Errors: ErrNoQueue, and *penstock.FieldError for
// a job that cannot be carried. In the latter case nothing is written and tx can continue.
//
// A UniqueKey takes four statements more, one of them on a connection of the store, which sees more than the snapshot of tx. Others that enqueue a job with it
// wait until tx ends, and no claim takes a job that is replaced.
func (q *Queue) EnqueueTx(ctx context.Context, tx Tx, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return q.write(ctx, tx, jobs, onTables{q.store})
}

// write is EnqueueTx. now reads what has committed, if tx may not.
func (q *Queue) write(ctx context.Context, tx session, jobs []penstock.NewJob, now tables.Runner) ([]penstock.Enqueued, error) {
	dedup, err := tables.HasDedup(jobs, false)
	if err != nil {
		return nil, err
	}
	made := make([]penstock.Enqueued, len(jobs))
	complete := func() error { return nil }
	if dedup {
		if jobs, complete, err = q.sift(ctx, tx, jobs, made, now); err != nil {
			return nil, orNoQueue(err, q.name)
		}
	}
	var some []int
	size := 0
	flush := func() error {
		if len(some) == 0 {
			return nil
		}
		ids, err := q.insert(ctx, tx, jobs, some)
		if err != nil {
			return orNoQueue(err, q.name)
		}
		for k, i := range some {
			made[i].ID = ids[k]
		}
		some, size = some[:0], 0
		return nil
	}
	for i := range jobs {
		if made[i].Deduplicated {
			continue
		}
		some = append(some, i)
		size += len(jobs[i].Payload) + len(jobs[i].Key)
		if len(some) == perInsert || size > 1<<20 {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return made, complete()
}

// insert writes some of the jobs and returns their numbers.
func (q *Queue) insert(ctx context.Context, tx session, jobs []penstock.NewJob, some []int) (ids []int64, err error) {
	var args []any
	for _, i := range some {
		j := &jobs[i]
		var headers []byte
		if all := j.AllHeaders(); len(all) > 0 {
			if headers, err = json.Marshal(all); err != nil {
				return nil, err
			}
		}
		var notBefore any
		if !j.NotBefore.IsZero() {
			notBefore = strings.Trim(at(j.NotBefore.Add(time.Microsecond-1).Truncate(time.Microsecond)), "'") // never too early
		}
		args = append(args, []byte(j.Group), j.Priority, notBefore, orNull(j.Key), headers, tables.NotNil(j.Payload))
	}
	const one = "(?, ?, ?, ?, ?, ?)"
	text := "insert into " + queueTable(q.store.opts.Schema, q.name) + " (group_key, priority, not_before, `key`, headers, payload) values " + strings.Repeat(one+", ", len(some)-1) + one
	const few = "select last_insert_id(), @@auto_increment_increment"
	text += " /*M!100500 returning seq */"
	if own, is := tx.(*beginning); is && own.short(text, args) {
		text += ";\n" + few
	}
	if ids, err = drawn(ctx, tx, len(some), text, args...); err != nil || len(ids) > 0 {
		return ids, err
	}
	return drawn(ctx, tx, len(some), few)
}

// drawn are the numbers of jobs: MariaDB returns each, MySQL says the first and its increment, if it is asked.
func drawn(ctx context.Context, tx session, n int, query string, args ...any) (ids []int64, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	for err == nil && rows.Next() {
		var id, by int64
		if len(columns) == 1 {
			err = rows.Scan(&id)
			ids = append(ids, id)
			continue
		}
		err = rows.Scan(&id, &by)
		for i := range int64(n) {
			ids = append(ids, id+i*by)
		}
	}
	return ids, cmp.Or(err, rows.Err())
}

func numbers(ctx context.Context, tx session, query string, args ...any) (all []int64, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}

// deduped has the known facts about jobs with dedup keys.
type deduped struct {
	*tables.Dedup
	store  *Store
	queue  int64
	tokens map[int64]int // of the jobs that come first
}

// sift finds out which jobs are there already. It returns them with what must be written of each, and a function that completes made after that.
func (q *Queue) sift(ctx context.Context, tx session, jobs []penstock.NewJob, made []penstock.Enqueued, now tables.Runner) ([]penstock.NewJob, func() error, error) {
	row, err := numbers(ctx, tx, q.store.sql("select id from {schema}.queues where name = ? union all select dedup_window div 1000 from {schema}.queues where name = ?", "", nil), []byte(q.name), []byte(q.name))
	if err != nil {
		return nil, nil, err
	}
	if len(row) < 2 {
		return nil, nil, sql.ErrNoRows
	}
	var d *deduped
	if slices.ContainsFunc(jobs, func(j penstock.NewJob) bool { return j.DedupKey != "" }) {
		if d, err = q.siftDedup(ctx, tx, row[0], row[1], jobs, made); err != nil {
			return nil, nil, err
		}
	}
	was := slices.Clone(made)
	written, united, err := (tables.Twins{Tx: callers{tx, q.store}, Now: now, Args: tables.Args{"queue": row[0], "jobs": onTables{q.store}.JobsTable(q.name)}}).Unite(ctx, jobs, made)
	return written, func() error {
		united()
		if d == nil {
			return nil
		}
		return d.note(ctx, tx, written, made, was)
	}, err
}

// siftDedup finds out which jobs are there already by their dedup keys. The others are known by a token until they have a number.
func (q *Queue) siftDedup(ctx context.Context, tx session, id, window int64, jobs []penstock.NewJob, made []penstock.Enqueued) (*deduped, error) {
	d := &deduped{store: q.store, queue: id, tokens: map[int64]int{}}
	drawn := make([]int64, len(jobs))
	for i := range drawn {
		drawn[i] = rand.Int64()
		d.tokens[drawn[i]] = i
	}
	d.Dedup = tables.NewDedup(jobs, drawn)
	known := map[string]int64{}
	order := make([]int, len(d.Keys)) // the same for every caller
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(d.Keys[a], d.Keys[b]) })
	for some := range slices.Chunk(order, 1000) {
		var args []any
		var keys []string
		for _, i := range some {
			args = append(args, []byte(d.Keys[i]), d.Seqs[i])
			keys = append(keys, d.Keys[i])
		}
		w := words{"queue": d.queue, "window": window}
		const over = "at <= utc_timestamp(6) - interval {window} microsecond"
		if _, err := tx.ExecContext(ctx, q.store.sql("insert into {schema}.dedup (queue_id, dedup_key, token, at) values "+strings.Repeat("({queue}, ?, ?, utc_timestamp(6)), ", len(some)-1)+
			"({queue}, ?, ?, utc_timestamp(6)) on duplicate key update seq = case when "+over+" then 0 else seq end, token = case when "+over+" then values(token) else token end, at = case when "+over+" then values(at) else at end", "", w), args...); err != nil {
			return nil, err
		}
		placeholders, args := texts(keys)
		rows, err := tx.QueryContext(ctx, q.store.sql("select dedup_key, token, seq from {schema}.dedup where queue_id = {queue} and dedup_key in ("+placeholders+") for update", "", w), args...)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var key string
			var token, seq int64
			if err := rows.Scan(&key, &token, &seq); err != nil {
				_ = rows.Close()
				return nil, err
			}
			known[key] = seq
			if _, mine := d.tokens[token]; mine {
				known[key] = token
			}
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	d.Made(jobs, known, made)
	return d, nil
}

// note writes the numbers of the jobs that came first instead of their tokens.
func (d *deduped) note(ctx context.Context, tx session, jobs []penstock.NewJob, made, was []penstock.Enqueued) error {
	var args []any
	for i := range made {
		switch first, mine := d.tokens[was[i].ID]; {
		case was[i].Deduplicated && mine:
			made[i].ID = made[first].ID
		case !was[i].Deduplicated && jobs[i].DedupKey != "":
			args = append(args, []byte(jobs[i].DedupKey), made[i].ID)
		}
	}
	for some := range slices.Chunk(args, 2000) {
		_, err := tx.ExecContext(ctx, d.store.sql("insert into {schema}.dedup (queue_id, dedup_key, token, seq, at) values "+strings.Repeat("({queue}, ?, 0, ?, utc_timestamp(6)), ", len(some)/2-1)+
			"({queue}, ?, 0, ?, utc_timestamp(6)) on duplicate key update seq = values(seq)", "", words{"queue": d.queue}), some...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s onTables) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) (made []penstock.Enqueued, err error) {
	to := s.Store.Queue(queue)
	err = s.explain(s.attempts.Once(ctx, s, &s.retries, tables.Noting{}, func(_ int64, first *tables.Batch) error {
		return s.once(ctx, func(t *tx) error {
			b, err := onTx{t, s.Store}.fill(ctx, first)
			if err == nil {
				t.began = true
				made, err = to.write(ctx, &beginning{t.Conn, b}, jobs, nil)
			}
			return err
		})
	}))
	if err != nil {
		return nil, err
	}
	return made, nil
}

// beginning is a transaction that begins with its first statement, in the same round trip, and with the batch's statements.
type beginning struct {
	*sql.Conn
	first *batch
}

// with is a statement with the beginning before it. One that is large goes by itself: a text that is too long the driver sends as a prepared statement.
func (t *beginning) with(ctx context.Context, query string, args []any) (string, []any, error) {
	if t.first == nil {
		return query, args, nil
	}
	var all batch
	all.add("begin")
	all.add(t.first.text.String(), t.first.args...)
	t.first = nil
	if !t.short(query, args) {
		_, err := t.Conn.ExecContext(ctx, all.text.String(), all.args...)
		return query, args, err
	}
	all.add(query, args...)
	return all.text.String(), all.args, nil
}

// short says whether a statement may go with others.
func (t *beginning) short(query string, args []any) bool {
	var one batch
	one.add(query, args...)
	return one.size < packet
}

func (t *beginning) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	query, args, err := t.with(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return t.Conn.ExecContext(ctx, query, args...)
}

func (t *beginning) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	query, args, err := t.with(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return t.Conn.QueryContext(ctx, query, args...)
}
