package portable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// held runs statements about leases in one round trip and returns those that the last of them, or the first, says are held.
func (q queue) held(ctx context.Context, fill func(b *pgx.Batch, row *queueRow, held *[]int64)) (held []int64, err error) {
	row, err := q.store.findQueue(ctx, q.name)
	if err != nil {
		return nil, err
	}
	err = q.store.send(ctx, q.name, func(b *pgx.Batch) {
		held = nil
		fill(b, row, &held)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

func collect(into *[]int64) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	}
}

// Extend implements penstock.Queue.
func (q queue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	if err := penstock.ValidateLease(lease); err != nil {
		return nil, err
	}
	return q.held(ctx, func(b *pgx.Batch, row *queueRow, held *[]int64) {
		b.Queue(q.store.sql("update {schema}.leases set until = clock_timestamp() + $3 * interval '1 microsecond' where queue_id - $1 = 0 and lease = any ($2::bigint[]) returning lease", ""),
			row.id, orEmpty(leases), lease.Microseconds()).Query(collect(held))
	})
}

// Ack implements penstock.Queue.
func (q queue) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	return q.held(ctx, func(b *pgx.Batch, row *queueRow, held *[]int64) { q.queueAck(b, row, leases, held) })
}

// queueAck ends jobs. Their leases are locked first: whoever else ends one waits, and finds none.
func (q queue) queueAck(b *pgx.Batch, row *queueRow, leases []int64, held *[]int64) {
	b.Queue(q.store.sql("hold_leases", ""), row.id, orEmpty(leases)).Query(collect(held))
	for _, statement := range []string{"end_jobs", "end_tries", "delete from {schema}.leases where queue_id - $1 = 0 and lease = any ($2::bigint[])"} {
		b.Queue(q.store.queueSQL(statement, q.name, false), row.id, orEmpty(leases))
	}
}

// verdict is what is written of a claimed job whose attempt did not end well.
type verdict struct {
	Lease    int64           `json:"lease"`
	Dead     bool            `json:"dead"`
	After    int64           `json:"after"` // microseconds until it runs again
	Attempts int             `json:"attempts"`
	Since    *time.Time      `json:"since"`
	Failures json.RawMessage `json:"failures"`
}

// readTried reads claimed jobs, and keeps others from ending them.
func (q queue) readTried(ctx context.Context, tx pgx.Tx, row *queueRow, which string, args ...any) ([]*tables.Tried, error) {
	rows, err := tx.Query(ctx, q.store.sql(statements["read_leases"]+which+" for update of l", ""), append([]any{row.id}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (*tables.Tried, error) {
		j := &tables.Tried{}
		var since *time.Time
		var failures []byte
		if err := r.Scan(&j.Lease, &j.Seq, &j.Attempt, &j.Worker, &j.History.Attempt, &since, &failures, &j.Limit); err != nil {
			return nil, err
		}
		j.History.Since = timeOf(since)
		return j, j.History.Parse(failures)
	})
}

// settle ends the leases of jobs that run again, or are given up.
func (q queue) settle(ctx context.Context, tx pgx.Tx, row *queueRow, jobs []*tables.Tried) error {
	if len(jobs) == 0 {
		return nil
	}
	var leases, dead []int64
	var verdicts []verdict
	for _, j := range jobs {
		verdicts = append(verdicts, verdict{j.Lease, j.Dead, j.After.Microseconds(), j.History.Attempt, orNullTime(j.History.Since), json.RawMessage(j.History.JSON())})
		leases = append(leases, j.Lease)
		if j.Dead {
			dead = append(dead, j.Lease)
		}
	}
	b := &pgx.Batch{}
	b.Queue(q.store.sql("end_tries", ""), row.id, leases)
	b.Queue(q.store.sql("try_again", ""), row.id, verdicts)
	if len(dead) > 0 {
		b.Queue(q.store.queueSQL("dead_letter_jobs", q.name, false), row.id, verdicts)
		b.Queue(q.store.queueSQL("end_jobs", q.name, false), row.id, dead)
	}
	b.Queue(q.store.sql("delete from {schema}.leases where queue_id - $1 = 0 and lease = any ($2::bigint[])", ""), row.id, leases)
	return tx.SendBatch(ctx, b).Close()
}

// ended settles claimed jobs as judge says.
func (q queue) ended(ctx context.Context, leases []int64, judge func(j *tables.Tried)) (held []int64, err error) {
	err = q.store.inQueue(ctx, q.name, func(tx pgx.Tx, row *queueRow) error {
		jobs, err := q.readTried(ctx, tx, row, " where l.queue_id - $1 = 0 and l.lease = any ($2::bigint[]) order by l.lease", orEmpty(leases))
		if err != nil {
			return err
		}
		held = nil
		for _, j := range jobs {
			judge(j)
			held = append(held, j.Lease)
		}
		return q.settle(ctx, tx, row, jobs)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Release implements penstock.Releaser.
func (q queue) Release(ctx context.Context, after time.Duration, leases ...int64) ([]int64, error) {
	return q.ended(ctx, leases, func(j *tables.Tried) { j.Back(after) })
}

// Retry implements penstock.Queue.
func (q queue) Retry(ctx context.Context, lease int64, after time.Duration, reason string) (dead bool, err error) {
	held, err := q.ended(ctx, []int64{lease}, func(j *tables.Tried) {
		j.Failed(reason, max(after, -1))
		dead = j.Dead
	})
	if err == nil && len(held) == 0 {
		err = tables.LeaseLost(q.name, lease)
	}
	return dead && err == nil, err
}

// DeadLetter implements penstock.Queue.
func (q queue) DeadLetter(ctx context.Context, lease int64, reason string) error {
	held, err := q.ended(ctx, []int64{lease}, func(j *tables.Tried) { j.Failed(reason, tables.Never) })
	if err == nil && len(held) == 0 {
		err = tables.LeaseLost(q.name, lease)
	}
	return err
}

// expire ends leases whose time is over, which counts as a failure of their jobs.
func (q queue) expire(ctx context.Context) error {
	const most = 500
	for n := most; n == most; {
		err := q.store.inQueue(ctx, q.name, func(tx pgx.Tx, row *queueRow) error {
			jobs, err := q.readTried(ctx, tx, row, fmt.Sprintf(" where l.queue_id = $1 and l.until <= (select clock_timestamp()) order by l.until limit %d", most))
			if err != nil {
				return err
			}
			n = len(jobs)
			for _, j := range jobs {
				j.Expired()
			}
			return q.settle(ctx, tx, row, jobs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Maintain implements penstock.Queue.
func (q queue) Maintain(ctx context.Context) error {
	row, err := q.store.findQueue(ctx, q.name)
	if err != nil {
		return err
	}
	var expired, scheduled, forgettable bool
	err = q.store.pool.QueryRow(ctx, q.store.sql("housekeeping", ""), row.id, time.Now()).Scan(&expired, &scheduled, &forgettable)
	if isNoRows(err) {
		q.store.queues.CompareAndDelete(q.name, row)
		_, err = q.store.findQueue(ctx, q.name)
		return err
	}
	if err == nil && expired {
		err = q.expire(ctx)
	}
	if err == nil && scheduled {
		err = q.runSchedules(ctx)
	}
	if err == nil && forgettable {
		_, err = q.store.pool.Exec(ctx, q.store.sql(`delete from {schema}.dedup d using {schema}.queues q
			where d.queue_id = $1 and q.id = $1 and d.at <= clock_timestamp() - q.dedup_window / 1000 * interval '1 microsecond'`, ""), row.id)
	}
	return q.store.explain(err)
}

// CancelJobs implements penstock.QueueStore.
func (s *Store) CancelJobs(ctx context.Context, name string, ids ...int64) (n int, err error) {
	err = s.inQueue(ctx, name, func(tx pgx.Tx, q *queueRow) error {
		b := &pgx.Batch{}
		b.Queue(s.sql("select from {schema}.leases where queue_id - $1 = 0 and seq = any ($2::bigint[]) order by seq for update", ""), q.id, orEmpty(ids))
		for _, table := range []string{"leases", "tries"} {
			b.Queue(s.sql("delete from {schema}."+table+" where queue_id - $1 = 0 and seq = any ($2::bigint[])", ""), q.id, orEmpty(ids))
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, s.queueSQL("delete from {table} where seq = any ($1::bigint[])", name, false), orEmpty(ids))
		n = int(done.RowsAffected())
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
