package sqlite

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var (
	_ driver.QueueStore = (*Store)(nil)
	_ tables.QueueDB    = onTables{}
	_ tables.Waker      = onTables{}
)

type queues = tables.Queues

// Queue is one queue, to enqueue jobs and to work on them. Safe for concurrent use.
type Queue struct {
	tables.WorkedQueue
	store *Store
	name  string
}

// Queue returns a queue. It does not check that there is one.
func (s *Store) Queue(name string) *Queue { return &Queue{s.queues.Queue(name), s, name} }

// DriverQueue implements driver.QueueStore.
func (s *Store) DriverQueue(name string) driver.Queue { return s.Queue(name) }

// Maintain implements driver.Queue. Like Maintain of outboxes it gives free pages back.
func (q *Queue) Maintain(ctx context.Context) error {
	if err := q.WorkedQueue.Maintain(ctx); err != nil {
		return err
	}
	return q.store.shrink(ctx)
}

// QueueTable returns the quoted name of the table with a queue's jobs, for plain
// INSERTs: penstock_queue_ and the queue's name, with the suffix that Table
// explains.
func QueueTable(queue string) string { return quotedName("penstock_queue_", queue) }

// onQueue puts the table of a queue into a statement.
func onQueue(queue, statement string) string { return on(QueueTable(queue), statement) }

func (s onTables) JobsTable(queue string) tables.SQL { return tables.SQL(QueueTable(queue)) }

func (s onTables) NewTable(ctx context.Context, tx tables.Tx, kind, name string) error {
	return tables.Free(ctx, tx, kind, name)
}

// MakeJobs implements tables.QueueDB. After it, an application can insert into QueueTable(q.Name).
func (s onTables) MakeJobs(ctx context.Context, tx tables.Tx, q *tables.QueueRow) error {
	_, err := tx.(onTx).ExecContext(ctx, definition("create_queue", q.Name, q.ID, "{sign}", string(q.Args(nil)["sign"].(tables.SQL))))
	return err
}

// definition is a statement that defines objects of one queue.
func definition(name, queue string, id int64, more ...string) string {
	parts := append(more, "{table}", QueueTable(queue), "{queue}", strconv.FormatInt(id, 10))
	for _, part := range []string{"ids", "scheduled", "ready", "keyed", "ended", "fixed", "holds", "held", "unique"} {
		parts = append(parts, "{"+part+"}", quotedName("penstock_"+part+"_of_", queue))
	}
	return strings.NewReplacer(parts...).Replace(statement(name))
}

func (s onTables) DropJobs(ctx context.Context, tx tables.Tx, q *tables.QueueRow) error {
	s.forgetSize(jobPages(q.Name))
	_, err := tx.(onTx).ExecContext(ctx, onQueue(q.Name, `drop table {table}`))
	return err
}

func (s onTables) PerQueue() []string {
	return []string{"barriers", "waits", "keyed", "busy", "ready", "scheduled", "leases", "histories", "dead_jobs", "dedup", "schedules", "group_policies", "group_starts"}
}

// JobsBytes implements tables.QueueDB: the size of the table of jobs in the file, with its index. The small rows about jobs, and dead letters, are in
// tables that queues share.
func (s onTables) JobsBytes(ctx context.Context, queue string) (int64, error) {
	bytes, err := s.size(ctx, s.readers, jobPages(queue))
	return bytes, s.explain(err)
}

func jobPages(queue string) pages {
	return pages{"queue:" + queue, []string{unquoted(QueueTable(queue)), unquoted(quotedName("penstock_ids_of_", queue))}}
}

// Enqueue implements tables.QueueDB. When it has returned the jobs survive a power cut.
func (s onTables) Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) (made []penstock.Enqueued, err error) {
	if err := tables.ValidateJobs(jobs, true); err != nil {
		return nil, err
	}
	err = s.Within(ctx, func(tx tables.Tx) error {
		made, err = s.Store.Queue(queue).EnqueueTx(ctx, tx.(onTx), jobs...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (s onTables) EnqueueIn(ctx context.Context, tx tables.Tx, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return s.Store.Queue(queue).EnqueueTx(ctx, tx.(onTx), jobs...)
}

// verdict is a job and its history, as statements take it.
type verdict struct {
	seq     int64
	history history
}

// MarshalJSON implements json.Marshaler.
func (v verdict) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{v.seq, v.history}) }

// Judge implements tables.QueueDB. The rows about a dead letter go with its row, and the next one of its key is ready.
func (s onTables) Judge(b *tables.Batch, q *tables.QueueRow, jobs []*tables.Tried) {
	var dead, failed []verdict
	var leases, gone, ready []int64
	var later [][2]int64
	for _, j := range jobs {
		leases = append(leases, j.Lease)
		v := verdict{j.Seq, j.History}
		switch {
		case j.Dead:
			dead, gone = append(dead, v), append(gone, j.Seq)
			continue
		case j.After > 0:
			later = append(later, [2]int64{j.Seq, j.After.Microseconds()})
		default:
			ready = append(ready, j.Seq)
		}
		if v.history.Attempt > 0 {
			failed = append(failed, v)
		}
	}
	b.Do("delete from {schema}.leases where {lease in leases}", q.Args(tables.Args{"leases": leases}))
	if len(dead) > 0 {
		b.Do("dead_letter_jobs", q.Args(tables.Args{"verdicts": dead}))
		b.Do("delete from {jobs} where {seq in seqs}", q.Args(tables.Args{"seqs": gone}))
		b.Do("cancel_waiting", q.Args(nil))
	}
	if len(failed) > 0 {
		b.Do("remember", q.Args(tables.Args{"verdicts": failed}))
	}
	if len(later) > 0 {
		b.Do("run_later", q.Args(tables.Args{"later": later}))
	}
	wake(b, q, ready)
}

// wake makes jobs ready that stand nowhere, or has them wait for their key. A key stays busy with the job that it is busy with.
func wake(b *tables.Batch, q *tables.QueueRow, seqs []int64) {
	if len(seqs) > 0 {
		b.Do("wake_keyed", q.Args(tables.Args{"seqs": seqs}))
		b.Do("wake", q.Args(tables.Args{"seqs": seqs}))
	}
}

// mostWoken is how many jobs that became due one transaction takes.
const mostWoken = 500

func (s onTables) Wake(ctx context.Context, tx tables.Tx, q *tables.QueueRow) (more bool, err error) {
	var seqs []int64
	b := new(tables.Batch).Rows(tables.All(&seqs), "due_jobs", q.Args(tables.Args{"most": mostWoken}))
	if err := tx.Run(ctx, b); err != nil || len(seqs) == 0 {
		return false, err
	}
	b = new(tables.Batch).Do("delete from {schema}.scheduled where queue_id = {queue} and {seq in seqs}", q.Args(tables.Args{"seqs": seqs}))
	wake(b, q, seqs)
	return len(seqs) == mostWoken, tx.Run(ctx, b)
}

// DeadJobCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) (found []admin.DeadCause, err error) {
	row, err := s.queues.Queue(q.Queue).Row(ctx)
	if err != nil {
		return nil, err
	}
	err = onTables{s}.causes(ctx, &found, "dead_job_causes", row.DeadJobArgs(q))
	return found, err
}
