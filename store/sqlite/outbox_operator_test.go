package sqlite_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// A subscription that is dropped leaves nothing behind, and takes nothing of
// another one's along.
func TestDropLeavesNothing(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	refused := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}
	if err := s.SetRetention(ctx, "orders", admin.Retention{Age: time.Hour}); err != nil {
		t.Fatal(err)
	}
	msgs := []penstock.Message{{Key: "parked"}, {Key: "held"}, {}, {Key: "fine"}}
	if err := s.Publish(ctx, "orders", msgs...); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		src := subscribe(t, s, name)
		_, batches := fetchAll(t, src)
		batches[0].Verdicts = []driver.Verdict{{Outcome: driver.Parked, Failures: refused, RetryIn: time.Hour},
			{Outcome: driver.Dead, Failures: refused, Hold: true}, {Outcome: driver.Dead, Failures: refused}, {}}
		if err := storetest.Settle(ctx, src, batches...); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Replay(ctx, admin.Replay{Outbox: "orders", Subscription: name, FromSeq: 4}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	rows := func() (all []int) {
		for _, table := range []string{"subscriptions", "entries"} {
			all = append(all, scan[int](t, app, `select count(*) from penstock_`+table))
		}
		return all
	}
	for _, step := range []struct {
		drop func() error
		want []int
	}{
		{func() error { return nil }, []int{2, 8}},
		{func() error { return s.DropSubscription(ctx, "orders", "a") }, []int{1, 4}},
		{func() error { return s.DropOutbox(ctx, "orders") }, []int{0, 0}},
	} {
		if err := step.drop(); err != nil {
			t.Fatal(err)
		}
		if got := rows(); !slices.Equal(got, step.want) {
			t.Errorf("the tables have %v rows, want %v", got, step.want)
		}
	}
}
