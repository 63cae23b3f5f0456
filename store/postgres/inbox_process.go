package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/due"
)

// ReceivedHandler does the work of one message within tx. It must not end tx. Any error
// rolls tx back.
type ReceivedHandler func(ctx context.Context, tx pgx.Tx, m penstock.Released) error

// PgxBegin has the method that Process needs: it is a *pgxpool.Pool or *pgx.Conn.
type PgxBegin interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Process calls InOrder in a new transaction, and in it h for each message to process now,
// one after another. nil means that m can be acknowledged: it was processed, now or
// before, or it is held back durably. After an error nothing has changed, so m must be
// delivered again.
func (i *Inbox) Process(ctx context.Context, db PgxBegin, m penstock.Message, wait time.Duration, h ReceivedHandler) error {
	_, err := process(ctx, db, h, func(tx pgx.Tx) ([]penstock.Released, error) { return i.InOrder(ctx, tx, m, wait) })
	return err
}

// ProcessDue does the same with Due, for one key at a time, until no message is due. Call
// it about once a second, in one process or in several. It returns how many messages it
// has processed. A key whose handler fails does not stop the others. It is skipped until
// the next call, and its error is joined to those of other keys, up to 64.
func (i *Inbox) ProcessDue(ctx context.Context, db PgxBegin, h ReceivedHandler) (int, error) {
	return due.Process(func(passingOver []string) ([]penstock.Released, error) {
		return process(ctx, db, h, func(tx pgx.Tx) ([]penstock.Released, error) {
			return i.released(ctx, tx, i.dueOf, i.consumer, 1, passingOver)
		})
	})
}

func process(ctx context.Context, db PgxBegin, h ReceivedHandler, receive func(pgx.Tx) ([]penstock.Released, error)) (all []penstock.Released, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		all, err = due.Each(ctx, tx, receive, h)
		return err
	})
	return all, err
}
