package sqlite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.BarrierQueue = (*Queue)(nil)

// Barrier implements driver.BarrierQueue.
func (q *Queue) Barrier(ctx context.Context) (barrier int64, err error) {
	err = onTables{q.store}.Within(ctx, func(tx tables.Tx) error {
		barrier, err = q.BarrierTx(ctx, tx.(onTx))
		return err
	})
	return barrier, err
}

// BarrierTx is Barrier within tx. The first one of a queue also makes triggers on its table, which count the jobs that hold a barrier.
func (q *Queue) BarrierTx(ctx context.Context, tx Tx) (int64, error) {
	row, err := q.store.rowIn(ctx, tx, q.name)
	if err != nil {
		return 0, q.explain(ctx, tx, "barrier of", err)
	}
	if _, err := tx.ExecContext(ctx, definition("create_barriers", q.name, row.ID)); err != nil {
		return 0, q.explain(ctx, tx, "barrier of", err)
	}
	done, err := tx.ExecContext(ctx, `insert into penstock_barriers (queue_id) values (?)`, row.ID)
	if err != nil {
		return 0, q.explain(ctx, tx, "barrier of", err)
	}
	return done.LastInsertId()
}

// UnsealedBarriers implements doctor.BarrierReader.
func (s *Store) UnsealedBarriers(ctx context.Context, queue string) (all []doctor.UnsealedBarrier, err error) {
	row, err := s.queues.Queue(queue).Row(ctx)
	if err != nil {
		return nil, err
	}
	err = onTables{s}.Run(ctx, new(tables.Batch).Rows(func(scan tables.Scan) error {
		var b doctor.UnsealedBarrier
		var since int64
		err := scan(&b.Barrier, &b.Running, &b.Waiting, &since)
		b.Since = time.UnixMilli(since)
		all = append(all, b)
		return err
	}, "unsealed_barriers", row.Args(nil)))
	return all, err
}

// Seal implements driver.BarrierQueue.
func (q *Queue) Seal(ctx context.Context, barrier int64) error {
	return onTables{q.store}.Within(ctx, func(tx tables.Tx) error { return q.SealTx(ctx, tx.(onTx), barrier) })
}

// SealTx is Seal within tx. A barrier without jobs that hold it opens when tx commits.
func (q *Queue) SealTx(ctx context.Context, tx Tx, barrier int64) error {
	_, err := q.withBarriers(ctx, tx, "barrier", []int64{barrier}, false)
	if err == nil {
		_, err = tx.ExecContext(ctx, `update penstock_barriers set sealed = 1 where barrier = ?`, barrier)
	}
	if err != nil {
		return q.explain(ctx, tx, "seal a barrier of", err)
	}
	return nil
}

// withBarriers is the row of the queue, if it has all barriers. If a job is to hold them, they must not be open.
func (q *Queue) withBarriers(ctx context.Context, tx Tx, field string, barriers []int64, holding bool) (*tables.QueueRow, error) {
	row, err := q.store.rowIn(ctx, tx, q.name)
	if err != nil {
		return nil, err
	}
	var wrong bool
	var number int64
	b := new(tables.Batch).Row(&wrong, "no_barrier", tables.Args{"queue": row.ID, "barriers": barriers, "holding": holding}, &number)
	if err := onOurs(tx).Run(ctx, b); err != nil || !wrong {
		return row, err
	}
	return nil, &penstock.FieldError{Field: field, Problem: fmt.Sprintf("has the barrier %d, which is open or not one of the queue", number), Hint: "make one with Barrier, and seal it after the last job that holds it"}
}

// never is the not_before of a job that waits for barriers. Its triggers put the job into penstock_scheduled; that of penstock_barriers, or wait, makes it due.
var never = time.UnixMilli(9e15)

// held are the barriers that the jobs at these places hold.
func held(jobs []penstock.NewJob, places []int) (barriers []int64) {
	for _, i := range places {
		if b := jobs[i].Holds; b != 0 {
			barriers = append(barriers, b)
		} else if b, err := strconv.ParseInt(jobs[i].Headers[penstock.HeaderHolds], 10, 64); err == nil {
			barriers = append(barriers, b)
		}
	}
	return barriers
}

// barriersOf returns jobs as they are written, and those that wait for barriers by their place. These barriers are not in the headers that are
// written. has: some of the jobs hold barriers or wait for them.
func barriersOf(jobs []penstock.NewJob) (written []penstock.NewJob, waits map[int]penstock.NewJob, has bool) {
	for i := range jobs {
		has = has || jobs[i].Holds != 0 || jobs[i].Headers[penstock.HeaderHolds] != ""
		if len(jobs[i].WaitsFor) == 0 && jobs[i].Headers[penstock.HeaderWaitsFor] == "" {
			continue
		}
		if has = true; waits == nil {
			waits, jobs = map[int]penstock.NewJob{}, slices.Clone(jobs)
		}
		all := jobs[i]
		all.ReadHeaders()
		waits[i] = all
		all.NotBefore, all.WaitsFor, all.OnDead, all.Headers = never, nil, "", maps.Clone(all.Headers)
		delete(all.Headers, penstock.HeaderWaitsFor)
		delete(all.Headers, penstock.HeaderOnDead)
		jobs[i] = all
	}
	return jobs, waits, has
}

// wait notes the barriers that jobs wait for. If these are open the jobs are due.
func (q *Queue) wait(ctx context.Context, tx Tx, waits map[int]penstock.NewJob, made []penstock.Enqueued) error {
	var notes [][3]any
	var barriers []int64
	for i, j := range waits {
		for _, b := range j.WaitsFor {
			if !made[i].Deduplicated {
				notes, barriers = append(notes, [3]any{b, j.OnDead, made[i].ID}), append(barriers, b)
			}
		}
	}
	row, err := q.withBarriers(ctx, tx, "waits for", barriers, false)
	if err != nil {
		return err
	}
	args := row.Args(tables.Args{"waiting": notes})
	b := &tables.Batch{}
	return onOurs(tx).Run(ctx, b.Do("note_waits", args).Do("let_go", args).Do("cancel_waiting", args))
}

// cancelWaiting makes dead letters of jobs that are to die with one that holds a barrier, and of those that wait for them in turn.
func (t onTx) cancelWaiting(ctx context.Context, args tables.Args) (err error) {
	for n := int64(1); n > 0 && err == nil; {
		b := &tables.Batch{}
		err = t.Run(ctx, b.Do("cancel_with_dead", args).Counted(&n, "end_cancelled", args))
	}
	return err
}
