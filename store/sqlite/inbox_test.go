package sqlite_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/store/sqlite"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t testing.TB) inboxtest.Instance {
		_, s, app := newFile(t, sqlite.Options{})
		mustExec(t, app, "create table effects (n integer primary key, msgkey text, place text)")
		return inboxtest.Receiving(inboxtest.Instance{
			Store: s,
			Age: func(t testing.TB) {
				for _, table := range []string{"received", "heads"} {
					mustExec(t, app, "update penstock_"+table+" set at = at - 3600000000")
				}
			},
			Count: func(t testing.TB, of string) int {
				return scan[int](t, app, "select count(*) from penstock_"+strings.TrimPrefix(of, "key_"))
			},
			Effects: func(t testing.TB, key string) []string {
				return strings.Split(scan[string](t, app, "select group_concat(place) from (select place from effects where msgkey = ? order by n)", key), ",")
			},
		}, s.Inbox, inboxtest.App[sqlite.Tx, *sql.Tx, *sql.DB]{
			Pool:  app,
			Begin: func(ctx context.Context) (*sql.Tx, error) { return app.BeginTx(ctx, nil) },
			Query: func(tx *sql.Tx) sqlite.Tx { return tx },
			Exec: func(ctx context.Context, tx *sql.Tx, statement string) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			},
			Commit:   (*sql.Tx).Commit,
			Rollback: (*sql.Tx).Rollback,
		})
	})
}
