package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.QueueStore = (*Store)(nil)

type (
	queues   = tables.Queues
	queueRow = tables.QueueRow
)

// queueTable is the table with a queue's jobs, quoted.
func queueTable(schema, name string) string {
	return quoted(schema) + "." + quoted(tableName("queue", name))
}

func (s onTables) JobsTable(queue string) tables.SQL {
	return tables.SQL(queueTable(s.opts.Schema, queue))
}

// MakeJobs implements tables.QueueDB. In a LIFO queue the index is read backwards, so the place of a priority is its negative.
func (s onTables) MakeJobs(ctx context.Context, _ tables.Tx, q *queueRow) error {
	if err := s.DropJobs(ctx, nil, q); err != nil {
		return err
	}
	engine, err := s.engine(ctx)
	if err != nil {
		return err
	}
	text, _ := s.rendered("create_queue", q.Args(tables.Args{"engine": engine, "unique": unique(tableName("queue", q.Name))}))
	return s.define(ctx, text)
}

func (s onTables) DropJobs(ctx context.Context, tx tables.Tx, q *queueRow) error {
	if tx != nil {
		if err := tx.Run(ctx, new(tables.Batch).Do("delete from {schema}.turns where inbox_id = -{queue}", q.Args(nil))); err != nil {
			return err
		}
	}
	return s.define(ctx, "drop table if exists "+string(q.Table))
}

// JobsBytes implements tables.QueueDB. MyRocks does not count rows that are in memory only. So the result is at least the size of the payloads of
// some jobs, as many as a bounded status looks at.
func (s onTables) JobsBytes(ctx context.Context, queue string) (n int64, err error) {
	b := new(tables.Batch).Row(new(bool), `select greatest(coalesce(sum(data_length + index_length), 0), (select coalesce(sum(octet_length(j.payload)), 0) from (select payload from {jobs} limit 10000) j))
		from information_schema.tables where table_schema = {database} and table_name = {name}`, tables.Args{"jobs": s.JobsTable(queue), "database": s.opts.Schema, "name": tableName("queue", queue)}, &n)
	return n, s.explain(s.ask(ctx, b))
}

func (s onTables) PerQueue() []string {
	return []string{"leases", "tries", "dead_jobs", "dedup", "schedules", "group_policies", "group_starts"}
}

func (s onTables) EnqueueIn(ctx context.Context, in tables.Tx, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return s.Store.Queue(queue).write(ctx, in.(*tx).Conn, jobs, nil)
}

func (s onTables) Judge(b *tables.Batch, q *queueRow, jobs []*tables.Tried) {
	var dead []int64
	for _, j := range jobs {
		args := q.Args(tables.Args{"lease": j.Lease, "after": j.After.Microseconds(), "attempts": j.History.Attempt, "since": tables.OrNull(j.History.Since), "failures": j.History.JSON(), "error": j.History.LastError()})
		if j.Dead {
			dead = append(dead, j.Seq)
			b.Do("dead_letter_job", args)
		} else {
			b.Do("try_again", args)
		}
	}
	if len(dead) > 0 {
		b.Do("update {these_seqs} straight_join {jobs} t force index (primary) on t.seq = d.seq set t.place = 127, t.`key` = null", q.Args(tables.Args{"seqs": dead}))
	}
}

// orNoQueue: the table of a queue is not there.
func orNoQueue(err error, name string) error {
	if number(err) == noSuchTable || errors.Is(err, sql.ErrNoRows) {
		return tables.NoQueue(name)
	}
	return err
}
