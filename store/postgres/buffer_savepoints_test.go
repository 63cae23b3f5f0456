package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// A savepoint that was left open ends with the transaction: a later use of it touches nothing of the next one on the
// connection, and loses no message silently.
func TestBufferSavepointOutlivesNothing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "empty commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			url := postgrestest.Database(t)
			f := jobsFixtureOn(t, url, penstock.FIFO)
			opts, err := pgxpool.ParseConfig(url)
			f.Must(err)
			opts.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(f.Ctx, opts)
			f.Must(err)
			t.Cleanup(pool.Close)
			orders, buffered := f.store.Outbox("orders"), postgres.NewBuffered(pool, penstock.BufferOptions{})
			begin := func() (pgx.Tx, pgx.Tx) {
				tx, err := buffered.Begin(f.Ctx)
				f.Must(err)
				inner, err := tx.Begin(f.Ctx)
				f.Must(err)
				return tx, inner
			}
			first, left := begin()
			if end != "empty commit" {
				f.Must(orders.PublishTx(f.Ctx, left, penstock.Message{Payload: []byte("first")}))
			}
			if end == "rollback" {
				f.Must(first.Rollback(f.Ctx))
			} else {
				f.Must(first.Commit(f.Ctx))
			}
			next, inner := begin()
			f.Must(orders.PublishTx(f.Ctx, inner, penstock.Message{Payload: []byte("next")}))
			f.Must(inner.(*postgres.BufferedTx).Flush(f.Ctx))
			for what, err := range map[string]error{"publish": orders.PublishTx(f.Ctx, left, penstock.Message{}), "rollback": left.Rollback(f.Ctx), "commit": left.Commit(f.Ctx)} {
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s: %v", what, err)
				}
			}
			f.Must(inner.Commit(f.Ctx))
			f.Must(next.Commit(f.Ctx))
			want := map[string]int64{"commit": 2, "empty commit": 1, "rollback": 1}[end]
			if n := f.Number("select count(*) from penstock.orders"); n != want {
				t.Errorf("%d messages, want %d", n, want)
			}
		})
	}
}

// A savepoint's rollback takes back all changes since it, also where another of the same transaction was left open.
func TestBufferSavepointsHaveNames(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	orders := f.store.Outbox("orders")
	tx, err := postgres.NewBuffered(f.Conn, penstock.BufferOptions{}).Begin(f.Ctx)
	f.Must(err)
	publish := func(tx pgx.Tx, text string) {
		f.Must(orders.PublishTx(f.Ctx, tx, penstock.Message{Payload: []byte(text)}))
	}
	publish(tx, "kept")
	a, err := tx.Begin(f.Ctx)
	f.Must(err)
	publish(a, "in a")
	b, err := tx.Begin(f.Ctx)
	f.Must(err)
	publish(b, "in b")
	f.Must(a.Rollback(f.Ctx))
	f.Must(tx.Commit(f.Ctx))
	if n := f.Number("select count(*) from penstock.orders"); n != 1 {
		t.Errorf("%d messages are committed, want the first alone", n)
	}
}
