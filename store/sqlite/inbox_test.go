package sqlite_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/store/sqlite"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t testing.TB) inboxtest.Instance {
		path, s, app := newFile(t, sqlite.Options{})
		mustExec(t, app, "create table effects (n integer primary key, msgkey text, place text)")
		return inboxtest.Receiving(inboxtest.Instance{
			Store: s,
			Age: func(t testing.TB) {
				for _, table := range []string{"received", "heads", "gaps"} {
					mustExec(t, app, "update penstock_"+table+" set at = at - 25 * 3600000000")
				}
			},
			Another: func(t testing.TB) driver.Store {
				s, err := sqlite.Open(t.Context(), path, sqlite.Options{BusyTimeout: patience})
				must(t, err)
				t.Cleanup(func() { _ = s.Close() })
				return s
			},
			Tables: func(t testing.TB) []string {
				names := scan[string](t, app, "select group_concat(substr(name, 10)) from sqlite_schema where type = 'table' and name glob 'penstock_*'")
				return strings.Split(strings.Replace(names, "heads", "key_heads", 1), ",")
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
