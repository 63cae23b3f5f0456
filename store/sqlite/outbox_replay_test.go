package sqlite_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// What a replay has still to read goes away, by the application's doing. It ends
// all the same, and housekeeping goes on.
func TestReplayOfWhatIsGone(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	if err := s.SetRetention(ctx, "orders", admin.Retention{Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	src := subscribe(t, s, "billing")
	if err := s.Publish(ctx, "orders", numbered(10)...); err != nil {
		t.Fatal(err)
	}
	_, batches := fetchAll(t, src)
	if err := storetest.Settle(ctx, src, batches...); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Replay(ctx, admin.Replay{Outbox: "orders", Subscription: "billing"}); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	b, err := src.Fetch(ctx, driver.Limit{Messages: 4, Bytes: 1 << 20})
	if err != nil || len(b.Messages) != 4 {
		t.Fatal(b, err)
	}
	mustExec(t, app, `delete from penstock_outbox_orders where seq > 4`)
	if got, _ := fetchAll(t, src); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	for i, want := range []int{1, 0} { // while a batch of it is not settled it goes on
		if err := src.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		if n := scan[int](t, app, `select count(*) from penstock_replays`); n != want {
			t.Errorf("step %d: there are %d replays, want %d", i, n, want)
		}
		if err := src.Settle(ctx, b.Number, driver.Settled{Batch: b}); err != nil {
			t.Fatal(err)
		}
	}
}
