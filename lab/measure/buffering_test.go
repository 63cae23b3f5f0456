package measure

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
)

func TestBuffering(t *testing.T) {
	db := onPostgres(t, "discard")
	r, err := Buffering(t.Context(), BufferingConfig{Setup: db, Publishes: 7000, Delays: DefaultBuffering.Delays, Callers: []int{1, 8}, Duration: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Flushes != 3 || r.FlushesBy[penstock.FlushFull] != 2 || r.FlushesBy[penstock.FlushCommit] != 1 {
		t.Errorf("flushes %v", r.FlushesBy)
	}
	if len(r.Ways) != 12 || len(r.Delayed) != 2 || r.Delayed[0].DelayMS != 1 || r.Delayed[1].DelayMS != 5 || r.Ways[4].Messages != 140 || r.Ways[5].Messages != 7000 {
		t.Errorf("got %+v", r)
	}
	for i, want := range []int{7000, 3, 1, 1} {
		if r.Ways[i].Flushes != want {
			t.Errorf("%s: %d flushes, want %d", r.Ways[i].Name, r.Ways[i].Flushes, want)
		}
	}
	if r.RatioToBulk <= 0 || r.SpeedupOverSingle <= 0 || r.Delayed[0].SpeedupOverSingle <= 0 {
		t.Errorf("got %+v", r)
	}
	writers := r.Writers
	if len(writers) != 4 {
		t.Errorf("got %+v", writers)
	}
	for i, w := range writers {
		if w.Callers != []int{1, 8, 1, 8}[i] || w.AutocommitPerSecond <= 0 || w.WriterPerSecond <= 0 || w.Speedup <= 0 || w.Commits == 0 {
			t.Errorf("got %+v", w)
		}
	}
	checkOutboxesGone(t, db)
}
