package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/store/sqlite"
)

// inboxTx is an application's transaction with an inbox.
type inboxTx struct {
	*sql.Tx
	inbox *sqlite.Inbox
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

func TestInboxGaps(t *testing.T) {
	t.Parallel()
	inboxtest.RunGaps(t, func(t testing.TB) inboxtest.Instance {
		_, s, app := newFile(t, sqlite.Options{})
		return inboxtest.Instance{
			Store: s,
			Begin: func(ctx context.Context, consumer string) (inboxtest.Tx, error) {
				tx, err := app.BeginTx(ctx, nil)
				return inboxTx{tx, sqlite.NewInbox(consumer)}, err
			},
		}
	})
}
