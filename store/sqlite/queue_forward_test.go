package sqlite_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/sqlite"
)

// newForward is newFile with the queue "emails".
func newForward(t *testing.T) (path string, s *sqlite.Store, app *sql.DB) {
	path, s, app = newFile(t, sqlite.Options{})
	if err := s.CreateQueue(t.Context(), "emails", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	return path, s, app
}

func jobCount(t *testing.T, app *sql.DB) int {
	t.Helper()
	return scan[int](t, app, `select count(*) from `+sqlite.QueueTable("emails"))
}

// The transaction commits and its answer is lost: moving the batch again makes no job
// twice.
func TestForwardAfterALostAnswer(t *testing.T) {
	t.Parallel()
	_, s, app := newForward(t)
	ctx := t.Context()
	src := subscribe(t, s, "mails")
	f := sqlite.Forwarding(src, "emails")
	for range 2 {
		if err := s.Publish(ctx, "orders", numbered(3)...); err != nil {
			t.Fatal(err)
		}
		batch, err := f.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
		if err != nil || len(batch.Messages) != 3 {
			t.Fatal(batch, err)
		}
		for range 3 {
			if err := f.Move(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := jobCount(t, app); n != 6 {
		t.Errorf("%d jobs of 6 messages", n)
	}
}

// A queue that is dropped meanwhile.
func TestForwardIntoADroppedQueue(t *testing.T) {
	t.Parallel()
	_, s, _ := newForward(t)
	ctx := t.Context()
	must(t, s.Publish(ctx, "orders", numbered(1)...))
	f := sqlite.Forwarding(subscribe(t, s, "mails"), "emails")
	batch, err := f.Fetch(ctx, driver.Limit{Messages: 1, Bytes: 1})
	must(t, err, s.DropQueue(ctx, "emails"))
	if err := f.Move(ctx, batch); !errors.Is(err, penstock.ErrNoQueue) {
		t.Errorf("got %v, want ErrNoQueue", err)
	}
}
