package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock/penstock"
)

// Tx is a business transaction: what it publishes is seen once it commits, or
// never. One goroutine at a time may use it.
type Tx struct {
	store   *Store
	written []write
	jobs    []newJob
	done    bool
}

type write struct {
	to  *outbox
	msg penstock.Message
}

type newJob struct {
	to       *jobQueue
	job      *job
	dedupKey string
}

// errTxDone: the transaction has been committed or rolled back.
var errTxDone = errors.New("the transaction has ended")

// Begin opens a transaction.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.db.Unlock()
	return &Tx{store: s}, nil
}

// Publish writes messages to an outbox. A message that cannot be used is a
// *penstock.FieldError, and then none of msgs is written.
func (tx *Tx) Publish(ctx context.Context, name string, msgs ...penstock.Message) error {
	if tx.done {
		return errTxDone
	}
	for i := range msgs {
		if err := msgs[i].Validate(); err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
		}
	}
	o, err := tx.store.enterOutbox(ctx, name)
	if err != nil {
		return err
	}
	defer tx.store.db.Unlock()
	for _, m := range msgs {
		m = clone(m)
		o.seq++
		m.Seq, m.CreatedAt, m.Attempt = o.seq, tx.store.db.now(), 1
		if m.ID == "" {
			m.ID = o.ids.ID(m.Seq, m.CreatedAt)
		}
		tx.written = append(tx.written, write{o, m})
	}
	return nil
}

// Enqueue writes jobs to a queue and says what became of each. A job that cannot be used is a *penstock.FieldError, and then none is
// written. Of two open transactions with the same dedup key the one that commits
// first wins; the other one's job is left out, where a database would have it wait.
func (tx *Tx) Enqueue(ctx context.Context, name string, jobs ...penstock.NewJob) ([]penstock.Enqueued, error) {
	if tx.done {
		return nil, errTxDone
	}
	if err := validate(jobs); err != nil {
		return nil, err
	}
	q, err := tx.store.enterQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	defer tx.store.db.Unlock()
	made := make([]penstock.Enqueued, len(jobs))
	for i := range jobs {
		made[i] = tx.enqueue(q, &jobs[i])
	}
	return made, nil
}

func (tx *Tx) enqueue(q *jobQueue, n *penstock.NewJob) penstock.Enqueued {
	for _, mine := range tx.jobs {
		if mine.to == q && n.DedupKey != "" && mine.dedupKey == n.DedupKey {
			return penstock.Enqueued{ID: mine.job.ID, Deduplicated: true}
		}
	}
	id, j := q.write(n, tx.store.db.now())
	if j != nil {
		tx.jobs = append(tx.jobs, newJob{q, j, n.DedupKey})
	}
	return penstock.Enqueued{ID: id, Deduplicated: j == nil}
}

// Commit appends what was published to the logs, and what was enqueued to the
// queues.
func (tx *Tx) Commit(ctx context.Context) error {
	if tx.done {
		return errTxDone
	}
	if err := tx.store.enter(ctx); err != nil {
		return err
	}
	defer tx.store.db.Unlock()
	tx.done = true
	for _, w := range tx.written {
		w.to.log = append(w.to.log, w.msg)
	}
	now := tx.store.db.now()
	for _, n := range tx.jobs {
		if n.dedupKey != "" {
			if _, taken := n.to.duplicate(n.dedupKey, now); taken {
				continue
			}
			n.to.remember(n.dedupKey, n.job.ID, now)
		}
		n.to.add(n.job, now)
	}
	return nil
}

// Rollback forgets what was published; after Commit it does nothing.
func (tx *Tx) Rollback(context.Context) error {
	tx.done = true
	return nil
}

// Publish implements driver.Store.
func (s *Store) Publish(ctx context.Context, name string, msgs ...penstock.Message) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	if err := tx.Publish(ctx, name, msgs...); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
