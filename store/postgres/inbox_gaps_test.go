package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/store/postgres"
)

// inboxTx is an application's transaction with an inbox.
type inboxTx struct {
	pgx.Tx
	inbox *postgres.Inbox
}

func (x inboxTx) FirstOf(ctx context.Context, ids ...string) ([]string, error) {
	return x.inbox.FirstOf(ctx, x.Tx, ids...)
}

func (x inboxTx) InOrder(ctx context.Context, m penstock.Message, wait time.Duration) ([]penstock.Released, error) {
	return x.inbox.InOrder(ctx, x.Tx, m, wait)
}

func (x inboxTx) Due(ctx context.Context, n int) ([]penstock.Released, error) {
	return x.inbox.Due(ctx, x.Tx, n)
}

func (x inboxTx) Effect(context.Context, string, string) error {
	panic("there is no table of the application's")
}

func (x inboxTx) Commit() error { return x.Tx.Commit(context.Background()) }

// Rollback is that of a consumer that is killed: the server sees its connection end.
func (x inboxTx) Rollback() error {
	_ = x.Conn().PgConn().Conn().Close()
	_ = x.Tx.Rollback(context.Background()) // fails, and gives the connection back
	return nil
}

func TestInboxGaps(t *testing.T) {
	t.Parallel()
	inboxtest.RunGaps(t, func(t testing.TB) inboxtest.Instance {
		f := newFixture(t, postgres.Options{})
		app, err := pgxpool.New(f.Ctx, f.URL)
		f.Must(err)
		t.Cleanup(app.Close)
		return inboxtest.Instance{
			Store: f.store,
			Begin: func(ctx context.Context, consumer string) (inboxtest.Tx, error) {
				tx, err := app.Begin(ctx)
				return inboxTx{tx, f.store.Inbox(consumer)}, err
			},
		}
	})
}
