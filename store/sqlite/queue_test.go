package sqlite_test

import (
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
)

// newQueue is a file with the queue "jobs" and the outbox "orders".
func newQueue(t testing.TB, order penstock.QueueOrder) (path string, s *sqlite.Store, q penstock.Queue) {
	t.Helper()
	path, s, _ = newFile(t, sqlite.Options{})
	if err := s.CreateQueue(t.Context(), "jobs", order); err != nil {
		t.Fatal(err)
	}
	return path, s, s.Queue("jobs")
}
