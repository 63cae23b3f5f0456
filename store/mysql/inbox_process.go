package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/due"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/tables"
)

// ReceivedHandler does the work of one message within tx. It must not end tx. Any error rolls tx back.
type ReceivedHandler func(ctx context.Context, tx *sql.Tx, m penstock.Released) error

// Begin has the method that Process needs: it is a *sql.DB or *sql.Conn.
type Begin interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Process calls InOrder in a new transaction, and in it h for each message to process now, one after another. nil means that m
// can be acknowledged: it was processed, now or before, or it is held back durably. After an error nothing has changed, so m
// must be delivered again.
func (i *Inbox) Process(ctx context.Context, db Begin, m penstock.Message, wait time.Duration, h ReceivedHandler) error {
	_, err := i.process(ctx, db, h, func(tx *sql.Tx) ([]penstock.Released, error) { return i.InOrder(ctx, tx, m, wait) })
	return err
}

// ProcessDue does the same with Due, for one key at a time, until no message is due. Call it about once a second, in one process
// or in several. It returns how many messages it has processed. A key whose handler fails does not stop the others. It is
// skipped until the next call, and its error is joined to those of other keys, up to 64.
func (i *Inbox) ProcessDue(ctx context.Context, db Begin, h ReceivedHandler) (int, error) {
	return due.Process(func(passingOver []string) ([]penstock.Released, error) {
		return i.process(ctx, db, h, func(tx *sql.Tx) ([]penstock.Released, error) {
			return i.box.Due(ctx, callers{tx, i.store}, 1, passingOver...)
		})
	})
}

func (i *Inbox) process(ctx context.Context, db Begin, h ReceivedHandler, receive func(*sql.Tx) ([]penstock.Released, error)) ([]penstock.Released, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, i.store.explain(err)
	}
	defer func() { _ = tx.Rollback() }() // also of a panic; nothing after Commit
	all, err := due.Each(ctx, tx, receive, h)
	if err == nil {
		err = i.store.explain(tx.Commit())
	}
	return all, err
}

// PublishOnce implements driver.OncePublisher.
func (s *Store) PublishOnce(ctx context.Context, inbox, outbox string, msgs ...penstock.Message) error {
	if err := messageid.Validate(msgs); err != nil {
		return err
	}
	box := tables.NewInbox(onTables{s}, inbox)
	return s.tx(ctx, func(t *tx) error {
		if err := t.run(ctx, &batch{}); err != nil {
			return err
		}
		if err := box.There(ctx, callers{t.Conn, s}); err != nil {
			return err
		}
		fresh, err := box.FirstOf(ctx, callers{t.Conn, s}, messageid.Given(msgs)...)
		if err != nil {
			return err
		}
		return s.Outbox(outbox).write(ctx, t.Conn, messageid.Fresh(msgs, fresh))
	})
}
