package portable_test

import (
	"context"
	"errors"
	neturl "net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/inboxtest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/store/portable"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t testing.TB) inboxtest.Instance {
		url := database(t)
		app, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(app.Close)
		exec(t, url, "create table effects (at timestamptz not null default clock_timestamp(), msgkey text, place text)")
		s := openStore(t, url, portable.Options{})
		return inboxtest.Receiving(inboxtest.Instance{
			Store: s,
			Age: func(t testing.TB) {
				for _, table := range []string{"received", "key_heads", "gaps", "progress", "attempts"} {
					exec(t, url, "update penstock_portable."+table+" set at = at - interval '25 hours'")
				}
			},
			Another: func(t testing.TB) driver.Store { return openStore(t, url, portable.Options{}) },
			Tables: func(t testing.TB) []string {
				return column[string](t, app, "select table_name::text from information_schema.tables where table_schema = 'penstock_portable'")
			},
			Count: func(t testing.TB, of string) int {
				return column[int](t, app, "select count(*) from penstock_portable."+of)[0]
			},
			Effects: func(t testing.TB, key string) []string {
				return column[string](t, app, "select place from effects where msgkey = $1 order by at", key)
			},
		}, s.Inbox, inboxtest.App[pgx.Tx, pgx.Tx, portable.Begin]{
			Pool: app,
			Away: func() (portable.Begin, *tcpproxy.Proxy) {
				u, err := neturl.Parse(url)
				if err != nil {
					t.Fatal(err)
				}
				proxy := tcpproxy.New(t, u.Host)
				u.Host = proxy.Addr()
				app, err := pgxpool.New(t.Context(), u.String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(app.Close)
				return app, proxy
			},
			Begin: app.Begin,
			Query: func(tx pgx.Tx) pgx.Tx { return tx },
			Exec: func(ctx context.Context, tx pgx.Tx, sql string) error {
				_, err := tx.Exec(ctx, sql)
				return err
			},
			Commit:   func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
			Rollback: func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
		})
	})
}

// column reads one column.
func column[T any](t testing.TB, pool *pgxpool.Pool, query string, args ...any) []T {
	rows, err := pool.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Under repeatable read what a transaction sees may be older than what it waits for: InOrder refuses it.
func TestInboxRefusesASnapshot(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := openStore(t, url, portable.Options{})
	if err := s.CreateInbox(t.Context(), "billing", 0); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Inbox("billing").InOrder(t.Context(), tx, penstock.Message{ID: "1", Key: "k"}, 0)
	var hinted *penstock.HintError
	if pgerror.State(err) != "25001" || !errors.As(err, &hinted) {
		t.Errorf("got %v, want 25001 with a hint", err)
	}
}

// Who receives a message, or looks for what is due, reads nothing of what is within its window or not due, whatever there is of it.
func TestInboxReadsNothingThatIsNotDue(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateInbox(t.Context(), "billing", 24*time.Hour))
	const many, most = 300, 100
	for _, rows := range []string{
		"received (inbox_id, id, at) select 1, 'id ' || g, now() from",
		"gaps (inbox_id, id, key, discarded, at) select 1, 'gap ' || g, 'k' || g, false, now() from",
		"key_heads (inbox_id, key, id, at) select 1, 'k' || g, 'id ' || g, now() from",
		"held (inbox_id, id, previous, key, at, due, payload) select 1, 'held ' || g, 'before ' || g, 'k' || g, now(), now() + interval '1 hour', '' from",
	} {
		exec(t, f.url, "insert into penstock_portable."+rows+" generate_series(1, $1) g", many)
	}
	app, err := pgxpool.New(t.Context(), f.url)
	f.must(err)
	defer app.Close()
	box := f.store.Inbox("billing")
	_, before := f.reads()
	tx, err := app.Begin(t.Context())
	f.must(err)
	first, err := box.First(t.Context(), tx, "new")
	f.must(err)
	late, err := box.InOrder(t.Context(), tx, penstock.Message{ID: "next", Key: "k", Headers: map[string]string{penstock.HeaderPrevious: "never"}}, time.Nanosecond)
	f.must(err)
	due, err := box.Due(t.Context(), tx, 10)
	f.must(err)
	f.must(tx.Commit(t.Context()))
	app.Close()
	_, after := f.reads()
	if n := after - before; n > most || !first || len(late) != 0 || len(due) > 1 {
		t.Errorf("%.0f entries were read next to %d rows of each kind, want at most %d; %t, %d released, %d due", n, many, most, first, len(late), len(due))
	}
}
