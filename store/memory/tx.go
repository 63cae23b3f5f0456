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
	done    bool
}

type write struct {
	to  *outbox
	msg penstock.Message
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
			m.ID = fmt.Sprintf("%s-%d", o.tag, m.Seq)
		}
		tx.written = append(tx.written, write{o, m})
	}
	return nil
}

// Commit appends what was published to the logs.
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
	return nil
}

// Rollback forgets what was published; after Commit it does nothing.
func (tx *Tx) Rollback(context.Context) error {
	tx.done = true
	return nil
}

// Publish implements penstock.Store.
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
