package mysql_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// Housekeeping that finds nothing to do waits for nobody who settles or renews, and has nobody wait: one subscription has settled
// everything, and another one, which is stopped, nothing.
func TestMaintainLooksFirst(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"InnoDB", "RocksDB"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := testserver.MariaDBDatabase(t)
			app := application(t, url)
			schema, _ := databaseOf(t, url)
			s := openStore(t, url, mysql.Options{Schema: schema, Engine: engine})
			must(t, s.Migrate(t.Context()), s.CreateOutbox(t.Context(), "orders"))
			settle := func(subscription string) {
				t.Helper()
				src, err := s.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: subscription, Holder: "test"})
				must(t, err)
				for b := fetch(t, src, 10); len(b.Messages) > 0; b = fetch(t, src, 10) {
					must(t, src.Settle(t.Context(), b.Number, driver.Settled{Batch: b}))
				}
				must(t, src.Close(t.Context()))
			}
			settle("running")
			settle("stopped")
			must(t, s.Publish(t.Context(), "orders", penstock.Message{Payload: []byte("m")}))
			settle("running")
			tx, err := app.BeginTx(t.Context(), nil)
			must(t, err)
			exec(t, tx, fmt.Sprintf("update `%s`.subscriptions set settled = settled", schema))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			must(t, s.Maintain(ctx, "orders"), tx.Rollback())
			settle("stopped")
			must(t, s.Maintain(t.Context(), "orders"))
			var left int
			must(t, app.QueryRowContext(t.Context(), fmt.Sprintf("select count(*) from `%s`.outbox_orders", schema)).Scan(&left))
			if left != 0 {
				t.Errorf("%d messages are left that all have settled", left)
			}
		})
	}
}
