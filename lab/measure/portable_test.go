package measure

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

func portableDatabase(t *testing.T) Setup {
	t.Helper()
	db := Setup{URL: testserver.Database(t, testserver.PostgresURL(t)), Schema: "bench_portable", Name: "bench", Progress: func(text string) { t.Log(text) }}
	store, err := portable.Open(t.Context(), db.URL, portable.Options{Schema: db.Schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Store = store
	return db
}

func TestPortableFifoLifo(t *testing.T) {
	t.Parallel()
	for order, mode := range map[penstock.QueueOrder]string{penstock.FIFO: ModeCarried, penstock.LIFO: ModeCall} {
		c := FifoLifoConfig{Setup: portableDatabase(t), Order: order, Mode: mode, Workers: 5, Preload: 500, Rate: 100, Arrivals: true, Duration: 2 * time.Second}
		c.Pin = true
		r, err := FifoLifo(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		checkCurve(t, "Penstock", r.Curve)
	}
}

func TestPortableChurn(t *testing.T) {
	t.Parallel()
	c := ChurnConfig{Setup: portableDatabase(t), Duration: time.Second, Batch: 100, Margin: time.Second, Late: 300 * time.Millisecond}
	c.Pin = true
	r, err := Churn(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outbox.Consumed == 0 || r.Outbox.Late == nil || !r.Outbox.Late.Delivered || len(r.Adopted.Intervals) > 0 {
		t.Errorf("got %+v", r)
	}
}

// Of the functions that plain tables do not have, nothing is measured.
func TestPortableQueue(t *testing.T) {
	t.Parallel()
	c := QueueConfig{Setup: portableDatabase(t), Ops: QueueOps, Batches: []int{1, 7}, Workers: []int{3}, Jobs: 60, Longest: time.Minute}
	r, err := Queue(t.Context(), c)
	if err != nil || len(r.Cells) != 2*2+1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, c := range r.Cells {
		if c.Penstock <= 0 || c.Baseline <= 0 || c.RatioLeased <= 0 {
			t.Errorf("got %+v", c)
		}
	}
	c.Ops = []string{OpEnqueue}
	if _, err := Queue(t.Context(), c); err == nil {
		t.Error("there are no functions to measure, and no error")
	}
}
