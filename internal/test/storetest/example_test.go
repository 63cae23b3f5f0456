package storetest_test

import (
	"context"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/memory"
)

// begin opens a transaction of the application's, which has a table of its own, too.
var begin func(context.Context, *memory.Store) (storetest.Tx, error)

// The test of a store: how a database is made for each case, and what the store can do.
func ExampleRun() {
	_ = func(t *testing.T) { // TestStore
		storetest.Run(t, storetest.Harness{
			Open: func(testing.TB) storetest.Instance {
				s := memory.New(memory.Options{})
				return storetest.Instance{
					Store:   s,
					Begin:   func(ctx context.Context) (storetest.Tx, error) { return begin(ctx, s) },
					Another: func(testing.TB) driver.Store { return s.Another() },
				}
			},
			Features: storetest.Features{ConcurrentWriters: true, Reclaim: true},
		})
	}
}
