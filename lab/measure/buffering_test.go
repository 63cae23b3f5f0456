package measure

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
)

func TestBuffering(t *testing.T) {
	setup, db := onPostgres(t, "discard")
	r, err := Buffering(t.Context(), BufferingConfig{Database: db, Store: setup.Store, Publishes: 7000, Callers: []int{1, 8}, Duration: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Flushes != 3 || r.FlushesBy[penstock.FlushFull] != 2 || r.FlushesBy[penstock.FlushCommit] != 1 {
		t.Errorf("flushes %v", r.FlushesBy)
	}
	if len(r.Ways) != 7 || len(r.Delayed) != 2 || r.Delayed[0].DelayMS != 1 || r.Delayed[1].DelayMS != 5 || r.Delayed[0].Ways[0].Messages != 140 || r.Delayed[0].Ways[3].Messages != 7000 {
		t.Errorf("got %+v", r)
	}
	for i, want := range []int{7000, 7000, 1, 3, 1, 1, 1} {
		if r.Ways[i].Flushes != want {
			t.Errorf("%s: %d flushes, want %d", r.Ways[i].Name, r.Ways[i].Flushes, want)
		}
	}
	if p := r.Ways[1].Published; p == nil || p.Seconds != 139.7 || p.Flushes != 100_000 || r.Ways[0].Published != nil {
		t.Errorf("published %+v", p)
	}
	if r.RatioToBulk <= 0 || r.SpeedupOverSingle <= 0 || r.SpeedupOverSingle1ms <= 0 || r.SpeedupOverSingle1ms != r.Delayed[0].SpeedupOverSingle {
		t.Errorf("got %+v", r)
	}
	writers := append(r.Writers, r.WritersSQLite...)
	if len(writers) != 4 {
		t.Errorf("got %+v", writers)
	}
	for i, w := range writers {
		if w.Callers != []int{1, 8, 1, 8}[i] || w.AutocommitPerSecond <= 0 || w.WriterPerSecond <= 0 || w.Speedup <= 0 || w.Commits == 0 {
			t.Errorf("got %+v", w)
		}
	}
	checkOutboxesGone(t, setup)
}
