package queuetest_test

import (
	"context"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/store/memory"
)

// begin opens a transaction of the application's.
var begin func(context.Context, *memory.Store) (queuetest.Tx, error)

// The test of a store's queues: how a database is made for each case, and what the store can do.
func ExampleRun() {
	_ = func(t *testing.T) { // TestQueues
		queuetest.Run(t, queuetest.Harness{
			Open: func(testing.TB) queuetest.Instance {
				s := memory.New(memory.Options{})
				return queuetest.Instance{
					Store:   s,
					Begin:   func(ctx context.Context) (queuetest.Tx, error) { return begin(ctx, s) },
					Another: func(testing.TB) driver.QueueStore { return s.Another() },
				}
			},
		})
	}
}
