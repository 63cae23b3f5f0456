// Package sqlitetest gives a test a database that needs no server.
package sqlitetest

import (
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/store/sqlite"
)

// New returns a migrated database in a file, which is closed when the test ends.
func New(tb testing.TB) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), filepath.Join(tb.TempDir(), "test.db"), sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s
}
