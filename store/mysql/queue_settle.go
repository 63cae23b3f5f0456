package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// held runs statements about leases in one round trip and returns those that the last of them, or the first, says are held.
func (q queue) held(ctx context.Context, fill func(b *batch, row *queueRow, held *[]int64)) (held []int64, err error) {
	err = q.store.inQueue(ctx, q.name, func(t *tx, row *queueRow) error {
		held = nil
		b := &batch{}
		fill(b, row, &held)
		return t.finish(ctx, b)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

func collect(into *[]int64) func(rows *sql.Rows) error {
	return func(rows *sql.Rows) error {
		var n int64
		err := rows.Scan(&n)
		*into = append(*into, n)
		return err
	}
}

// Extend implements penstock.Queue.
func (q queue) Extend(ctx context.Context, lease time.Duration, leases ...int64) ([]int64, error) {
	if err := penstock.ValidateLease(lease); err != nil {
		return nil, err
	}
	return q.held(ctx, func(b *batch, row *queueRow, held *[]int64) {
		w := words{"leases": list(leases), "lease": lease.Microseconds()}
		b.read(collect(held), q.store.queueSQL("hold_leases", row, w))
		b.add(q.store.queueSQL("update {schema}.leases force index (primary) set until = utc_timestamp(6) + interval {lease} microsecond where queue_id = {queue} and lease in ({leases})", row, w))
	})
}

// Ack implements penstock.Queue.
func (q queue) Ack(ctx context.Context, leases ...int64) ([]int64, error) {
	return q.held(ctx, func(b *batch, row *queueRow, held *[]int64) { q.queueAck(b, row, leases, held) })
}

// queueAck ends jobs. Their leases are locked first: whoever else ends one waits, and finds none.
func (q queue) queueAck(b *batch, row *queueRow, leases []int64, held *[]int64) {
	*held = nil
	w := words{"leases": list(leases), "these": these(leases)}
	b.read(collect(held), q.store.queueSQL("hold_leases", row, w))
	for _, statement := range []string{"end_jobs", "end_tries", "end_leases"} {
		b.add(q.store.queueSQL(statement, row, w))
	}
}

// readTried reads claimed jobs, and keeps others from ending them.
func (q queue) readTried(ctx context.Context, t *tx, row *queueRow, which string) (jobs []*tables.Tried, err error) {
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		j := &tables.Tried{}
		var since sql.NullTime
		var failures []byte
		if err := rows.Scan(&j.Lease, &j.Seq, &j.Attempt, &j.Worker, &j.History.Attempt, &since, &failures, &j.Limit); err != nil {
			return err
		}
		j.History.Since = timeOf(since)
		jobs = append(jobs, j)
		return j.History.Parse(failures)
	}, q.store.queueSQL("read_leases", row, words{"which": which}))
	return jobs, t.run(ctx, b)
}

// settle ends the leases of jobs that run again, or are given up.
func (q queue) settle(ctx context.Context, t *tx, row *queueRow, jobs []*tables.Tried) error {
	if len(jobs) == 0 {
		return nil
	}
	var leases, dead []int64
	for _, j := range jobs {
		if leases = append(leases, j.Lease); j.Dead {
			dead = append(dead, j.Seq)
		}
	}
	b := &batch{}
	b.add(q.store.queueSQL("end_tries", row, words{"these": these(leases)}))
	for _, j := range jobs {
		w := words{"lease": j.Lease, "after": j.After.Microseconds(), "attempts": j.History.Attempt}
		since, failures := timeOrNull(j.History.Since), []byte(j.History.JSON())
		if j.Dead {
			b.add(q.store.queueSQL("dead_letter_job", row, w), since, failures, []byte(j.History.LastError()))
		} else {
			b.add(q.store.queueSQL("try_again", row, w), since, failures)
		}
		if err := t.empty(ctx, b); err != nil {
			return err
		}
	}
	if len(dead) > 0 {
		b.add(q.store.queueSQL("update {these} straight_join {jobs} t force index (primary) on t.seq = d.seq set t.place = 127, t.`key` = null", row, words{"these": these(dead)}))
	}
	b.add(q.store.queueSQL("end_leases", row, words{"these": these(leases)}))
	return t.finish(ctx, b)
}

// ended settles claimed jobs as judge says.
func (q queue) ended(ctx context.Context, leases []int64, judge func(j *tables.Tried)) (held []int64, err error) {
	err = q.store.inQueue(ctx, q.name, func(t *tx, row *queueRow) error {
		jobs, err := q.readTried(ctx, t, row, "l.lease in ("+list(leases)+") order by l.lease")
		if err != nil {
			return err
		}
		held = nil
		for _, j := range jobs {
			judge(j)
			held = append(held, j.Lease)
		}
		return q.settle(ctx, t, row, jobs)
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
		err := q.store.inQueue(ctx, q.name, func(t *tx, row *queueRow) error {
			jobs, err := q.readTried(ctx, t, row, fmt.Sprintf("l.until <= utc_timestamp(6) order by l.until limit %d", most))
			if err != nil {
				return err
			}
			n = len(jobs)
			for _, j := range jobs {
				j.Expired()
			}
			return q.settle(ctx, t, row, jobs)
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
	var there, expired, scheduled, forgettable bool
	b := &batch{}
	b.one(&there, q.store.queueSQL("housekeeping", row, words{"now": at(time.Now())}), &expired, &scheduled, &forgettable)
	if err := q.store.ask(ctx, b); err != nil {
		return q.store.explain(err)
	}
	if !there {
		q.store.queues.CompareAndDelete(q.name, row)
		_, err = q.store.findQueue(ctx, q.name)
		return err
	}
	if expired {
		err = q.expire(ctx)
	}
	if err == nil && scheduled {
		err = q.runSchedules(ctx)
	}
	if err == nil && forgettable {
		err = q.store.inQueue(ctx, q.name, func(t *tx, row *queueRow) error {
			b := &batch{}
			b.add(q.store.queueSQL(`delete from {schema}.dedup where queue_id = {queue}
				and at <= utc_timestamp(6) - interval ((select q.dedup_window from {schema}.queues q where q.id = {queue}) div 1000) microsecond`, row, nil))
			return t.finish(ctx, b)
		})
	}
	return err
}

// CancelJobs implements penstock.QueueStore.
func (s *Store) CancelJobs(ctx context.Context, name string, ids ...int64) (n int, err error) {
	err = s.inQueue(ctx, name, func(t *tx, q *queueRow) error {
		var jobs []int64
		b := &batch{}
		w := words{"seqs": list(ids)}
		b.add(s.queueSQL("delete from {schema}.leases where queue_id = {queue} and seq in ({seqs})", q, w))
		b.add(s.queueSQL("delete from {schema}.tries where queue_id = {queue} and seq in ({seqs})", q, w))
		b.read(collect(&jobs), s.queueSQL("select seq from {jobs} force index (primary) where seq in ({seqs}) and place <> 127 for update", q, w))
		if err := t.run(ctx, b); err != nil {
			return err
		}
		n = len(jobs)
		b = &batch{}
		b.add(s.queueSQL("delete from {jobs} where seq in ({seqs})", q, words{"seqs": list(jobs)}))
		return t.finish(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
