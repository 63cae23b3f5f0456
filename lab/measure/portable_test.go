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
