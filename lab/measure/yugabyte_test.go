package measure

import (
	"testing"
	"time"
)

// By hand and on plain tables, all four; the figures that no machine decides are as published.
func TestYugabyte(t *testing.T) {
	t.Parallel()
	db := portableDatabase(t)
	r, err := Yugabyte(t.Context(), YugabyteConfig{Setup: db, Runs: yugabyteRuns, Duration: 400 * time.Millisecond, Margin: 100 * time.Millisecond, Events: 400, Rows: 40})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Curves) != 8 || len(r.Lines()) != 8 || len(r.Fetches) != 3 || len(r.Writes) != 5 {
		t.Fatalf("got %+v", r)
	}
	for _, c := range r.Curves {
		if c.Nexts <= 0 || c.Seeks <= 0 { // on a busy machine no job may end within the time
			t.Errorf("got %+v", c)
		}
	}
	for by, f := range map[string]SimulatedFetch{"hand": r.Fetches[0], "hand, last_ts": r.Fetches[1], "Penstock": r.Fetches[2]} {
		if f.By != by || (f.Nexts > 200) != (by == "hand") {
			t.Errorf("got %+v", f)
		}
	}
	for i, flushes := range []int64{2, 41, 41, 0, 0} {
		if w := r.Writes[i]; flushes > 0 && w.Flushes != flushes || flushes == 0 && (w.Flushes < 2 || w.Flushes > 5) {
			t.Errorf("got %+v", w)
		}
	}
}
