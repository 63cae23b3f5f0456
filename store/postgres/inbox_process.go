package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// ReceivedHandler does the work of one message within a transaction, which it must
// not end. Any error rolls the transaction back.
type ReceivedHandler func(ctx context.Context, tx pgx.Tx, m penstock.Released) error

// PgxBegin is what Process needs of a connection; *pgxpool.Pool and *pgx.Conn have it.
type PgxBegin interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Process is InOrder in a transaction of its own, in which it calls h for each message
// that may be processed now, one after another. nil means that m can be acknowledged: it
// was processed, now or before, or it is held back, durably. After an error nothing has
// changed: have it delivered again.
func (i *Inbox) Process(ctx context.Context, db PgxBegin, m penstock.Message, wait time.Duration, h ReceivedHandler) error {
	_, err := i.process(ctx, db, h, func(tx pgx.Tx) ([]penstock.Released, error) { return i.InOrder(ctx, tx, m, wait) })
	return err
}

// ProcessDue is Due in the same way, of one key at a time, until no message is due. Call
// it about once a second, in one process or in several. It returns how many messages
// it has processed.
func (i *Inbox) ProcessDue(ctx context.Context, db PgxBegin, h ReceivedHandler) (int, error) {
	total := 0
	for {
		n, err := i.process(ctx, db, h, func(tx pgx.Tx) ([]penstock.Released, error) { return i.Due(ctx, tx, 1) })
		total += n
		if n == 0 || err != nil {
			return total, err
		}
	}
}

func (i *Inbox) process(ctx context.Context, db PgxBegin, h ReceivedHandler, receive func(pgx.Tx) ([]penstock.Released, error)) (n int, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		released, err := receive(tx)
		if err != nil {
			return err
		}
		for _, m := range released {
			if err := h(ctx, tx, m); err != nil {
				return err
			}
		}
		n = len(released)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
