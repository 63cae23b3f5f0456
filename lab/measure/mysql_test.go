package measure

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// myRocks is a separate server, whose counters no other session moves. Nothing commits late there but the late row, and looking
// again for it is left out, because time decides how often that is done.
func myRocks(t *testing.T, opts mysql.Options) Setup {
	t.Helper()
	db := Setup{URL: testserver.StartMariaDB(t).URL, Schema: opts.Schema, Name: "bench", Progress: func(text string) { t.Log(text) }}
	store, err := mysql.Open(db.URL, opts)
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

// A row that commits late is found, while everything is walked over again that was deleted within the margin.
func TestMySQLChurn(t *testing.T) {
	t.Parallel()
	db := myRocks(t, mysql.Options{Schema: "bench_mysql", Engine: "RocksDB"})
	c, err := Churn(t.Context(), ChurnConfig{Setup: db, Pin: true, Duration: 3 * time.Second, Batch: 100, Margin: time.Second, Late: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if c.Outbox.Consumed == 0 || c.Outbox.Late == nil || !c.Outbox.Late.Delivered || len(c.Adopted.Intervals) > 0 || c.ByHand.Consumed == 0 || c.Outbox.RocksDB.Next > 10 {
		t.Errorf("got %+v", c)
	}
}

// few reports whether RocksDB walks as far as it may for one. Workers that claim side by side walk over what the others have ended meanwhile.
func few(t *testing.T, what string, c *CallsPerJob) {
	t.Helper()
	if c == nil || c.Seek <= 0 || c.Next > 10 || c.Steps() > 20 {
		t.Errorf("%s: RocksDB's calls are %+v each, wanted 10 next and 20 steps at most", what, c)
	}
}

// The published experiments on a real LSM tree: what is measured here is how far it walks, which no load changes.
func TestMyRocksExperiments(t *testing.T) {
	t.Parallel()
	db := myRocks(t, mysql.Options{Schema: "bench_mysql", Engine: "RocksDB", Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		r, err := FifoLifo(t.Context(), FifoLifoConfig{
			Setup: db, Pin: true, Order: order, Mode: ModeCall, Workers: 3, Preload: 500, Rate: 50, Arrivals: true, Duration: 500 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Dequeued == 0 || r.Baseline.Dequeued == 0 {
			t.Errorf("got %+v", r)
		}
		few(t, string(order), r.RocksDB)
		t.Logf("%s: %+v a dequeue; the hand-written queue: %+v", order, *r.RocksDB, *r.Baseline.RocksDB)
	}
	churn := ChurnConfig{Setup: db, Pin: true, Duration: time.Second, Batch: 100, Margin: time.Millisecond}
	c, err := Churn(t.Context(), churn)
	if err != nil {
		t.Fatal(err)
	}
	few(t, "churn", c.Outbox.RocksDB)
	t.Logf("churn: %+v a row, by hand %+v", *c.Outbox.RocksDB, *c.ByHand.RocksDB)
}
