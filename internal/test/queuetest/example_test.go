package queuetest_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/store/sqlite"
)

// begin opens a transaction of the application's.
var begin func(context.Context, *sqlite.Store) (queuetest.Tx, error)

// open opens the database of a file.
func open(tb testing.TB, file string) *sqlite.Store {
	s, err := sqlite.Open(tb.Context(), file, sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// The test of a store's queues: how a database is made for each case, and what the store can do.
func ExampleRun() {
	_ = func(t *testing.T) { // TestQueues
		queuetest.Run(t, queuetest.Harness{
			Open: func(tb testing.TB) queuetest.Instance {
				file := filepath.Join(tb.TempDir(), "test.db")
				s := open(tb, file)
				return queuetest.Instance{
					Store:   s,
					Begin:   func(ctx context.Context) (queuetest.Tx, error) { return begin(ctx, s) },
					Another: func(tb testing.TB) driver.QueueStore { return open(tb, file) },
				}
			},
		})
	}
}
