package tables

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
)

// QueueDB has the further methods that queues need of their store.
type QueueDB interface {
	DB
	// NewTable is an error if nothing new of a kind can have the name, or something has it. No other transaction makes one until this one
	// ends.
	NewTable(ctx context.Context, tx Tx, kind, name string) error
	// MakeJobs makes the table of a queue's jobs anew: an existing one is left from a process that died on the way. tx is for a dialect whose
	// transactions can define tables.
	MakeJobs(ctx context.Context, tx Tx, q *QueueRow) error
	DropJobs(ctx context.Context, tx Tx, q *QueueRow) error
	// PerQueue are the tables that have rows of queues.
	PerQueue() []string
	// JobsTable is its name, quoted.
	JobsTable(queue string) SQL
	// JobsBytes is about its size with its indexes, or 0 if that is not known.
	JobsBytes(ctx context.Context, queue string) (int64, error)
	// Judge writes when jobs run again, or that they are dead.
	Judge(b *Batch, q *QueueRow, jobs []*Tried)
	// Enqueue enqueues in a separate transaction, EnqueueIn within one.
	Enqueue(ctx context.Context, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error)
	EnqueueIn(ctx context.Context, tx Tx, queue string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error)
	// LimitedGroups are words of the statement "ready_groups" in a queue with policies. "weight" is a group's, "running_groups" joins how many jobs of it
	// run, and "may_start" is whether a job may.
	LimitedGroups(q *QueueRow) Args
	// Looks has the store's options that a claim needs.
	Looks() Options
	// Round is a round trip of a claim, which begins with giving back jobs of claims whose answers were lost, and with the batch in first. It returns
	// the numbers of this one, should its answer be lost.
	Round(ctx context.Context, q *QueueRow, c driver.Claim, r *Round, lost []int64, first *Batch) (numbers []int64, err error)
}

// Waker is a QueueDB that keeps jobs that may run apart from others. Its Round sets Expired if jobs have become due, and calls Queue.Back then.
type Waker interface {
	// Wake has some jobs run that have become due, and reports whether there may be more.
	Wake(ctx context.Context, tx Tx, q *QueueRow) (more bool, err error)
}

// Queues is the part of a driver.QueueStore that is the same in every dialect.
type Queues struct {
	on       QueueDB
	retries  *retry.Counter
	attempts *Attempts
	rows     sync.Map // *QueueRow by name
}

// NewQueues are those of a store.
func NewQueues(on QueueDB, retries *retry.Counter, attempts *Attempts) *Queues {
	return &Queues{on: on, retries: retries, attempts: attempts}
}

// Queue is a worker's view of one.
func (s *Queues) Queue(name string) Queue { return Queue{s, name} }

// DriverQueue implements driver.QueueStore.
func (s *Queues) DriverQueue(name string) driver.Queue { return s.Queue(name) }

// QueueRow has the columns of a queue's row that do not change, and the claims' observations.
type QueueRow struct {
	ID    int64
	Name  string
	Table SQL
	lost  unanswered
	calls joined
	*Seen
	over Passed // leases and dedup keys whose time is over
}

// Row is the queue's row, as it is known.
func (q Queue) Row(ctx context.Context) (*QueueRow, error) { return q.find(ctx, q.name) }

// RowIn is Row as a transaction sees it.
func (q Queue) RowIn(ctx context.Context, on Runner) (*QueueRow, error) {
	return q.look(ctx, on, q.name, "")
}

// Args of a statement about the queue. {sign} and {dir} are those of its order.
func (q *QueueRow) Args(more Args) Args {
	a := Args{"queue": q.ID, "jobs": q.Table, "sign": SQL(""), "dir": SQL("asc")}
	if q.LIFO() {
		a["sign"], a["dir"] = SQL("-"), SQL("desc")
	}
	return a.With(more)
}

// CreateQueue implements driver.QueueStore.
func (s *Queues) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := cmp.Or(penstock.ValidateQueueName(name), order.Validate()); err != nil {
		return err
	}
	return s.on.Within(ctx, func(tx Tx) error {
		if err := s.on.NewTable(ctx, tx, "queue", name); err != nil {
			return err
		}
		q := &QueueRow{Name: name, Table: s.on.JobsTable(name), Seen: NewSeen(order == penstock.LIFO)}
		b := new(Batch).Do("patient", nil)
		b.Do("insert into {schema}.queues (name, lifo) values ({name}, {lifo})", Args{"name": name, "lifo": q.LIFO()})
		b.Row(new(bool), "select id from {schema}.queues where name = {name}", Args{"name": name}, &q.ID)
		if err := tx.Run(ctx, b); err != nil {
			return err
		}
		return s.on.MakeJobs(ctx, tx, q)
	})
}

// DropQueue implements driver.QueueStore.
func (s *Queues) DropQueue(ctx context.Context, name string) error {
	err := s.locked(ctx, name, func(tx Tx, q *QueueRow) error {
		b := new(Batch).Do("patient", nil)
		holdTurns(b, name)
		for _, table := range s.on.PerQueue() {
			b.Do("delete from {schema}."+table+" where queue_id = {queue}", q.Args(nil))
		}
		b.Do("delete from {schema}.queues where id = {queue}", q.Args(nil))
		if err := tx.Run(ctx, b); err != nil {
			return err
		}
		return s.on.DropJobs(ctx, tx, q)
	})
	s.rows.Delete(name)
	return err
}

// SetQueue implements driver.QueueStore.
func (s *Queues) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	if err := set.ValidateWithoutHistory(); err != nil {
		return err
	}
	return s.locked(ctx, name, func(tx Tx, row *QueueRow) error {
		if set.Rate != nil {
			if err := s.changePolicy(ctx, tx, row, true, "", func(p *policyRow) { p.policy.Rate, p.set = *set.Rate, *set.Rate != penstock.Rate{} }); err != nil {
				return err
			}
		}
		b := &Batch{}
		holdTurns(b, name)
		b.Do(`update {schema}.queues set paused = coalesce({paused}, paused), max_attempts = coalesce({attempts}, max_attempts),
			max_running = coalesce({running}, max_running), dedup_window = coalesce({window}, dedup_window) where name = {name}`,
			Args{"name": name, "paused": set.Paused, "attempts": set.MaxAttempts, "running": set.MaxRunning, "window": (*int64)(set.DedupWindow)})
		return tx.Finish(ctx, b)
	})
}

// look reads the row of a queue. The lock is "for update", or none.
func (s *Queues) look(ctx context.Context, on Runner, name, lock string) (*QueueRow, error) {
	q := &QueueRow{Name: name, Table: s.on.JobsTable(name)}
	var there, lifo bool
	b := new(Batch).Row(&there, "select id, lifo from {schema}.queues where name = {name} "+lock, Args{"name": name}, &q.ID, &lifo)
	if err := on.Run(ctx, b); err != nil {
		return nil, err
	}
	if !there {
		return nil, NoQueue(name)
	}
	q.Seen = NewSeen(lifo)
	return q, nil
}

// holdTurns, behind the lock of the queue's row, waits for all claims that are under way. None begins until the transaction ends.
func holdTurns(b *Batch, name string) {
	b.Lock("hold_turns", Args{"name": name})
}

// locked runs fn in a transaction that has locked the queue's row.
func (s *Queues) locked(ctx context.Context, name string, fn func(tx Tx, q *QueueRow) error) error {
	return s.on.Within(ctx, func(tx Tx) error {
		q, err := s.look(ctx, tx, name, "for update")
		if err != nil {
			return err
		}
		return fn(tx, q)
	})
}

// withoutClaims begins a batch in which no claim of the queue is under way.
func (q *QueueRow) withoutClaims() *Batch {
	b := new(Batch).Lock("select id from {schema}.queues where id = {queue} for update", q.Args(nil))
	holdTurns(b, q.Name)
	return b
}

// find knows a queue from before, or looks. One that was made anew since has another id: a statement
// with the old one finds nothing, and forget is called.
func (s *Queues) find(ctx context.Context, name string) (*QueueRow, error) {
	if err := s.on.Ready(ctx); err != nil {
		return nil, err
	}
	if q, ok := s.rows.Load(name); ok {
		return q.(*QueueRow), nil
	}
	q, err := s.look(ctx, s.on, name, "")
	if err != nil {
		return nil, err
	}
	found, _ := s.rows.LoadOrStore(name, q)
	return found.(*QueueRow), nil
}

// lookAgain is find for an operator's call, which would find nothing under a former id: it looks each time.
func (s *Queues) lookAgain(ctx context.Context, name string) (*QueueRow, error) {
	if err := s.on.Ready(ctx); err != nil {
		return nil, err
	}
	q, err := s.look(ctx, s.on, name, "")
	if known, ok := s.rows.Load(name); ok && (errors.Is(err, penstock.ErrNoQueue) || err == nil && known.(*QueueRow).ID != q.ID) {
		s.rows.CompareAndDelete(name, known)
	}
	if err != nil {
		return nil, err
	}
	return s.find(ctx, name)
}

// forget a queue that is not there any more.
func (s *Queues) forget(q *QueueRow) { s.rows.CompareAndDelete(q.Name, q) }

// in runs fn in a transaction about a queue.
func (s *Queues) in(ctx context.Context, name string, fn func(tx Tx, q *QueueRow) error) error {
	q, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	return s.orNoQueue(s.on.Within(ctx, func(tx Tx) error { return fn(tx, q) }), name)
}

// send is a transaction of one round trip about a queue.
func (s *Queues) send(ctx context.Context, name string, fill func(b *Batch, q *QueueRow)) error {
	q, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	return s.orNoQueue(s.on.Send(ctx, func(b *Batch) { fill(b, q) }), name)
}

// orNoQueue: the table of a queue is not there.
func (s *Queues) orNoQueue(err error, name string) error {
	if s.on.Missing(err) {
		return NoQueue(name)
	}
	return err
}

// CancelJobs implements driver.QueueStore.
func (s *Queues) CancelJobs(ctx context.Context, name string, ids ...int64) (n int, err error) {
	var cancelled int64
	if _, err := s.lookAgain(ctx, name); err != nil {
		return 0, err
	}
	err = s.in(ctx, name, func(tx Tx, q *QueueRow) error {
		these := q.Args(Args{"seqs": ids})
		b := q.withoutClaims().Lock("hold_seqs", these) // a claim that is under way would leave the lease of a job that is not there any more
		b.Do("give_up", these)
		for _, table := range []string{"leases", "tries"} {
			b.Do("cancel_"+table, these)
		}
		b.Counted(&cancelled, "cancel_jobs", these)
		return tx.Finish(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	return int(cancelled), nil
}

// timeOf is UTC, and zero of none.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// OrNull: the zero time is none.
func OrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
