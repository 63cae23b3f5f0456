package sqlite_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
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

func (x inboxTx) Effect(ctx context.Context, key, place string) error {
	_, err := x.ExecContext(ctx, "insert into effects (key, place) values (?, ?)", key, place)
	return err
}

func TestInbox(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t testing.TB) inboxtest.Instance {
		_, s, app := newFile(t, sqlite.Options{})
		mustExec(t, app, "create table effects (n integer primary key, key text, place text)")
		handler := func(box *sqlite.Inbox, h inboxtest.Handler) sqlite.ReceivedHandler {
			return func(ctx context.Context, tx *sql.Tx, m penstock.Released) error { return h(ctx, inboxTx{tx, box}, m) }
		}
		return inboxtest.Instance{
			Store: s,
			Begin: func(ctx context.Context, consumer string) (inboxtest.Tx, error) {
				tx, err := app.BeginTx(ctx, nil)
				return inboxTx{tx, s.Inbox(consumer)}, err
			},
			Process: func(ctx context.Context, consumer string, m penstock.Message, wait time.Duration, h inboxtest.Handler) error {
				box := s.Inbox(consumer)
				return box.Process(ctx, app, m, wait, handler(box, h))
			},
			ProcessDue: func(ctx context.Context, consumer string, h inboxtest.Handler) (int, error) {
				box := s.Inbox(consumer)
				return box.ProcessDue(ctx, app, handler(box, h))
			},
			Age: func(t testing.TB) {
				for _, table := range []string{"received", "heads"} {
					mustExec(t, app, "update penstock_"+table+" set at = at - 3600000000")
				}
			},
			Count: func(t testing.TB, of string) int {
				return scan[int](t, app, "select count(*) from penstock_"+strings.TrimPrefix(of, "key_"))
			},
			Effects: func(t testing.TB, key string) []string {
				return strings.Split(scan[string](t, app, "select group_concat(place) from (select place from effects where key = ? order by n)", key), ",")
			},
		}
	})
}

// First says of one id what FirstOf says of some.
func TestInboxFirst(t *testing.T) {
	t.Parallel()
	_, s, app := newFile(t, sqlite.Options{})
	must(t, s.CreateInbox(t.Context(), "billing", 0))
	tx, err := app.BeginTx(t.Context(), nil)
	must(t, err)
	for _, want := range []bool{true, false} {
		if isNew, err := s.Inbox("billing").First(t.Context(), tx, "a"); isNew != want || err != nil {
			t.Errorf("First: got %v and %v, want %v", isNew, err, want)
		}
	}
	must(t, tx.Rollback())
}

// A message whose id comes again is published once within the window, and once more after it.
func TestPublishOnceForgetsAfterTheWindow(t *testing.T) {
	t.Parallel()
	_, s, app := newFile(t, sqlite.Options{})
	must(t, s.CreateInbox(t.Context(), "billing", time.Hour), s.CreateOutbox(t.Context(), "again"))
	seen := 0
	src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "again", Subscription: "look", Holder: "test"})
	must(t, err)
	defer src.Close(t.Context())
	published := func(want int) {
		t.Helper()
		must(t, s.PublishOnce(t.Context(), "billing", "again", penstock.Message{ID: "a"}))
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
		must(t, err)
		must(t, src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
		if seen += len(b.Messages); seen != want {
			t.Errorf("%d messages, want %d", seen, want)
		}
	}
	published(1)
	published(1)
	mustExec(t, app, "update penstock_received set at = at - 3600000001")
	published(2)
	published(2)
}
