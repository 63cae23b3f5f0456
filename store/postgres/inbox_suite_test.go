package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/store/postgres"
)

// It forgets by turns of its ring, which TestInboxForgetsAfterItsWindow is about, and what it refuses TestInboxRefuses says.
func TestInbox(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t testing.TB) inboxtest.Instance {
		f := &inboxFixture{fixture: newFixture(t, postgres.Options{})}
		app, err := pgxpool.New(f.Ctx, f.URL)
		f.Must(err)
		t.Cleanup(app.Close)
		f.Exec("create table effects (n bigserial, msgkey text, place text)")
		return inboxtest.Receiving(inboxtest.Instance{
			Store: f.store,
			Turns: true,
			Age: func(testing.TB) {
				start, _ := f.turn(f.Conn)
				f.ageTo(start + 3)
			},
			Effects: func(t testing.TB, key string) (places []string) {
				f.Must(f.Conn.QueryRow(f.Ctx, "select array_agg(place order by n) from effects where msgkey = $1", key).Scan(&places))
				return places
			},
		}, f.store.Inbox, inboxtest.App[pgx.Tx, pgx.Tx, postgres.PgxBegin]{
			Pool: app,
			Away: func() (postgres.PgxBegin, *tcpproxy.Proxy) {
				proxy := tcpproxy.New(t, hostOf(t, f.URL))
				app, err := pgxpool.New(f.Ctx, through(t, f.URL, proxy.Addr()))
				f.Must(err)
				t.Cleanup(app.Close)
				return app, proxy
			},
			Begin: app.Begin,
			Query: func(tx pgx.Tx) pgx.Tx { return tx },
			Exec: func(ctx context.Context, tx pgx.Tx, sql string) error {
				_, err := tx.Exec(ctx, sql)
				return err
			},
			Commit: func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
			Rollback: func(tx pgx.Tx) error { // that of a consumer that is killed: the server sees its connection end
				_ = tx.Conn().PgConn().Conn().Close()
				_ = tx.Rollback(context.Background()) // fails, and gives the connection back
				return nil
			},
		})
	})
}
