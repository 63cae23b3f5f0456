package portable

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.QueueStore = (*Store)(nil)

type (
	queues   = tables.Queues
	queueRow = tables.QueueRow
)

// jobsTable is the table of a queue's jobs, quoted.
func (s *Store) jobsTable(queue string) string {
	return pgx.Identifier{s.opts.Schema, "queue_" + queue}.Sanitize()
}

func (s onTables) JobsTable(queue string) tables.SQL { return tables.SQL(s.jobsTable(queue)) }

func (s onTables) MakeJobs(ctx context.Context, tx tables.Tx, q *queueRow) error {
	for _, statement := range []string{"drop table if exists {jobs}", "create_queue", "create index on {jobs} (key, ts, seq) where key <> ''"} {
		if err := s.defineFor(ctx, q, statement); err != nil {
			return err
		}
	}
	return tx.Run(ctx, new(tables.Batch).Do("make_turns", q.Args(nil)))
}

func (s onTables) DropJobs(ctx context.Context, tx tables.Tx, q *queueRow) error {
	b := new(tables.Batch).Do("delete from {schema}.turns where inbox_id = -{queue}::bigint", q.Args(nil))
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	return s.defineFor(ctx, q, "drop table if exists {jobs}")
}

func (s *Store) defineFor(ctx context.Context, q *queueRow, statement string) error {
	args := q.Args(nil)
	delete(args, "queue") // it may have no number yet
	text, _ := s.rendered(statement, args)
	return s.define(ctx, text)
}

func (s onTables) JobsBytes(ctx context.Context, queue string) (int64, error) {
	return s.bytes(ctx, s.jobsTable(queue))
}

func (s onTables) PerQueue() []string {
	return []string{"leases", "tries", "dead_jobs", "dedup", "schedules", "group_policies", "group_starts"}
}

func (s onTables) EnqueueIn(ctx context.Context, tx tables.Tx, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return s.Store.Queue(queue).write(ctx, tx.(pgTx), jobs, true)
}

// verdict is the row of a claimed job whose attempt did not succeed.
type verdict struct {
	Lease    int64           `json:"lease"`
	Dead     bool            `json:"dead"`
	After    int64           `json:"after"` // microseconds until it runs again
	Attempts int             `json:"attempts"`
	Since    *time.Time      `json:"since"`
	Failures json.RawMessage `json:"failures"`
}

func (s onTables) Judge(b *tables.Batch, q *queueRow, jobs []*tables.Tried) {
	var verdicts []verdict
	var dead []int64
	for _, j := range jobs {
		verdicts = append(verdicts, verdict{j.Lease, j.Dead, j.After.Microseconds(), j.History.Attempt, tables.OrNull(j.History.Since), json.RawMessage(j.History.JSON())})
		if j.Dead {
			dead = append(dead, j.Lease)
		}
	}
	args := q.Args(tables.Args{"verdicts": verdicts, "leases": dead})
	b.Do("try_again", args)
	if len(dead) > 0 {
		b.Do("dead_letter_jobs", args)
		b.Do("end_jobs", args)
	}
}

func (s onTables) NewTable(ctx context.Context, tx tables.Tx, kind, name string) error {
	return tables.Free(ctx, tx, kind, name)
}

// orNoQueue: the row or the table of a queue is not there.
func (s *Store) orNoQueue(err error, name string) error {
	if isNoRows(err) || (onTables{s}).Missing(err) {
		return tables.NoQueue(name)
	}
	return err
}
