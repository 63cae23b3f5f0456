package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/due"
)

// ReceivedHandler does the work of one message within a transaction, which it must
// not end. Any error rolls the transaction back.
type ReceivedHandler func(ctx context.Context, tx *sql.Tx, m penstock.Released) error

// Process is InOrder in a transaction of db (see OpenDB), in which it calls h for each
// message that may be processed now, one after another. nil means that m can be
// acknowledged: it was processed, now or before, or it is held back, durably. After an
// error nothing has changed: have it delivered again.
func (i *Inbox) Process(ctx context.Context, db *sql.DB, m penstock.Message, wait time.Duration, h ReceivedHandler) error {
	_, err := process(ctx, db, h, func(tx *sql.Tx) ([]penstock.Released, error) { return i.InOrder(ctx, tx, m, wait) })
	return err
}

// ProcessDue is Due in the same way, of one key at a time, until no message is due. Call
// it about once a second. It returns how many messages it has processed. A key whose
// handler fails does not stop the others: it is passed over until the next call, and its error
// is one of those that are joined, up to 64 of them.
func (i *Inbox) ProcessDue(ctx context.Context, db *sql.DB, h ReceivedHandler) (int, error) {
	return due.Process(func(passingOver []string) (n int, key *string, err error) {
		n, err = process(ctx, db, h, func(tx *sql.Tx) ([]penstock.Released, error) {
			released, err := i.box.Due(ctx, onTx{tx}, 1, passingOver...)
			if len(released) > 0 {
				key = &released[0].Key
			}
			return released, err
		})
		return n, key, err
	})
}

func process(ctx context.Context, db *sql.DB, h ReceivedHandler, receive func(*sql.Tx) ([]penstock.Released, error)) (int, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // also of a panic; nothing after Commit
	released, err := receive(tx)
	if err != nil {
		return 0, err
	}
	for _, m := range released {
		if err := h(ctx, tx, m); err != nil {
			return 0, err
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return len(released), nil
}
