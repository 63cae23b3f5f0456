package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/due"
)

// ReceivedHandler does the work of one message within tx. It must not end tx. Any error
// rolls tx back.
type ReceivedHandler func(ctx context.Context, tx *sql.Tx, m penstock.Released) error

// Process calls InOrder in a new transaction of db (see OpenDB), and in it h for each
// message to process now, one after another. nil means that m can be acknowledged: it was
// processed, now or before, or it is held back durably. After an error nothing has
// changed, so m must be delivered again.
func (i *Inbox) Process(ctx context.Context, db *sql.DB, m penstock.Message, wait time.Duration, h ReceivedHandler) error {
	_, err := process(ctx, db, h, func(tx *sql.Tx) ([]penstock.Released, error) { return i.InOrder(ctx, tx, m, wait) })
	return err
}

// ProcessDue does the same with Due, for one key at a time, until no message is due. Call
// it about once a second. It returns how many messages it has processed. A key whose
// handler fails does not stop the others. It is skipped until the next call, and its error
// is joined to those of other keys, up to 64.
func (i *Inbox) ProcessDue(ctx context.Context, db *sql.DB, h ReceivedHandler) (int, error) {
	return due.Process(func(passingOver []string) ([]penstock.Released, error) {
		return process(ctx, db, h, func(tx *sql.Tx) ([]penstock.Released, error) {
			return i.box.Due(ctx, onOurs(tx), 1, passingOver...)
		})
	})
}

func process(ctx context.Context, db *sql.DB, h ReceivedHandler, receive func(*sql.Tx) ([]penstock.Released, error)) ([]penstock.Released, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // also of a panic; nothing after Commit
	all, err := due.Each(ctx, tx, receive, h)
	if err == nil {
		err = tx.Commit()
	}
	return all, err
}
