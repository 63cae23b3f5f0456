package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
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
func (q *Queue) write(ctx context.Context, tx tables.Session, jobs []penstock.NewJob, now tables.Runner) ([]penstock.Enqueued, error) {
	if err := tables.ValidateJobs(jobs, false); err != nil {
		return nil, err
	}
	made, err := tables.Enqueue(ctx, &enqueuing{callers: callers{tx, q.store}, queue: q.name, now: now}, jobs)
	if err != nil {
		return nil, orNoQueue(err, q.name)
	}
	return made, nil
}

// enqueuing is a transaction in which jobs of a queue are written.
type enqueuing struct {
	callers
	queue string
	now   tables.Runner
	id    int64 // of the queue, once it was looked up
	keeps int64 // microseconds that a dedup key counts
}

func (e *enqueuing) args(ctx context.Context) (tables.Args, error) {
	if e.id == 0 {
		there := false
		row := new(tables.Batch).Row(&there, "select id, dedup_window div 1000 from {schema}.queues where name = {name}", tables.Args{"name": e.queue}, &e.id, &e.keeps)
		if err := e.Run(ctx, row); err != nil {
			return nil, err
		}
		if !there {
			return nil, tables.NoQueue(e.queue)
		}
	}
	return tables.Args{"queue": e.id, "jobs": onTables{e.store}.JobsTable(e.queue)}, nil
}

// Twins implements tables.Enqueuing.
func (e *enqueuing) Twins(ctx context.Context) (tables.Twins, error) {
	args, err := e.args(ctx)
	return tables.Twins{Tx: e.callers, Now: e.now, Args: args}, err
}

// Note implements tables.Enqueuing. Until Noted, new keys have the job 0. No other transaction sees that.
func (e *enqueuing) Note(ctx context.Context, first map[string]int, _ []penstock.Enqueued) (map[string]int64, error) {
	args, err := e.args(ctx)
	if err != nil {
		return nil, err
	}
	known, b := map[string]int64{}, &tables.Batch{}
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(first)), 1000) { // in one order
		some := args.With(tables.Args{"keys": keys, "over": tables.SQL(fmt.Sprint("at <= utc_timestamp(6) - interval ", e.keeps, " microsecond"))})
		b.Do("insert into {schema}.dedup (queue_id, dedup_key, at) values "+rows(some, keys, "({queue}, {key}, utc_timestamp(6))")+
			" on duplicate key update seq = case when {over} then 0 else seq end, at = case when {over} then values(at) else at end", some)
		b.Rows(func(scan tables.Scan) error {
			var key string
			var seq int64
			err := scan(&key, &seq)
			known[key] = seq
			return err
		}, "select dedup_key, seq from {schema}.dedup where queue_id = {queue} and {dedup_key in keys} for update", some)
	}
	return known, e.Run(ctx, b)
}

// Noted implements tables.Enqueuing.
func (e *enqueuing) Noted(ctx context.Context, keys []string, ids []int64) error {
	b := &tables.Batch{}
	for len(keys) > 0 {
		n := min(len(keys), 1000)
		args := tables.Args{"queue": e.id}
		for i, id := range ids[:n] {
			args[fmt.Sprint("seq", i)] = id
		}
		b.Do("insert into {schema}.dedup (queue_id, dedup_key, seq, at) values "+rows(args, keys[:n], "({queue}, {key}, {seq}, utc_timestamp(6))")+" on duplicate key update seq = values(seq)", args)
		keys, ids = keys[n:], ids[n:]
	}
	return e.Run(ctx, b)
}

// rows are values, one for each key: {key} and other words of a row get its number.
func rows(args tables.Args, keys []string, row string) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		args[fmt.Sprint("key", i)] = key
		all[i] = strings.NewReplacer("{key}", fmt.Sprint("{key", i, "}"), "{seq}", fmt.Sprint("{seq", i, "}")).Replace(row)
	}
	return strings.Join(all, ", ")
}

// Insert implements tables.Enqueuing.
func (e *enqueuing) Insert(ctx context.Context, jobs []penstock.NewJob, places []int, made []penstock.Enqueued) error {
	for len(places) > 0 {
		n, size := 0, 0
		for n < min(len(places), perInsert) && size <= 1<<20 {
			j := &jobs[places[n]]
			n, size = n+1, size+len(j.Payload)+len(j.Key)
		}
		ids, err := e.insert(ctx, jobs, places[:n])
		if err != nil {
			return err
		}
		for k, i := range places[:n] {
			made[i].ID = ids[k]
		}
		places = places[n:]
	}
	return nil
}

// insert writes some of the jobs and returns their numbers.
func (e *enqueuing) insert(ctx context.Context, jobs []penstock.NewJob, some []int) (ids []int64, err error) {
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
	text := "insert into " + queueTable(e.store.opts.Schema, e.queue) + " (group_key, priority, not_before, `key`, headers, payload) values " + strings.Repeat(one+", ", len(some)-1) + one
	const few = "select last_insert_id(), @@auto_increment_increment"
	text += " /*M!100500 returning seq */"
	if own, is := e.Session.(*beginning); is && own.short(text, args) {
		text += ";\n" + few
	}
	if ids, err = drawn(ctx, e.Session, len(some), text, args...); err != nil || len(ids) > 0 {
		return ids, err
	}
	return drawn(ctx, e.Session, len(some), few)
}

// drawn are the numbers of jobs: MariaDB returns each, MySQL says the first and its increment, if it is asked.
func drawn(ctx context.Context, tx tables.Session, n int, query string, args ...any) (ids []int64, err error) {
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

func (s onTables) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) (made []penstock.Enqueued, err error) {
	to := s.Store.Queue(queue)
	err = s.explain(s.attempts.Once(ctx, s, &s.retries, tables.Noting{}, func(_ int64, first *tables.Batch) error {
		return s.once(ctx, func(t *tx) error {
			b, err := t.fill(ctx, first)
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

// with is a statement with the beginning before it. One that is large goes alone: a text that is too long the driver sends as a prepared statement.
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

// short reports whether a statement may go with others.
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
