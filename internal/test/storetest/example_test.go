package storetest_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// begin opens a transaction of the application's, which has a table of its own, too.
var begin func(context.Context, *sqlite.Store) (storetest.Tx, error)

// open opens the database of a file.
func open(tb testing.TB, file string) *sqlite.Store {
	s, err := sqlite.Open(tb.Context(), file, sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// The test of a store: how a database is made for each case, and what the store can do.
func ExampleRun() {
	_ = func(t *testing.T) { // TestStore
		storetest.Run(t, storetest.Harness{
			Open: func(tb testing.TB) storetest.Instance {
				file := filepath.Join(tb.TempDir(), "test.db")
				s := open(tb, file)
				return storetest.Instance{
					Store:   s,
					Begin:   func(ctx context.Context) (storetest.Tx, error) { return begin(ctx, s) },
					Another: func(tb testing.TB) driver.Store { return open(tb, file) },
				}
			},
			Features: storetest.Features{Reclaim: true},
		})
	}
}
