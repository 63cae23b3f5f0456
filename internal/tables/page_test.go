package tables

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// A sweep is over once it has read as far as the mark, however much waits behind that: each is a walk over all that was deleted while a
// snapshot was open. It goes on while there is more before the mark, and the longer it took the later is the next one.
func TestSweeps(t *testing.T) {
	t.Parallel()
	const limit, margin, sweep = 10, time.Second, 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(nil, penstock.Subscribe{})
		r.ID, r.Box.Buckets = 1, 1
		start := time.Now()
		var seq int64
		// look finds rows of some times after the start, and reports whether it was a sweep.
		look := func(took time.Duration, rows int, from time.Duration) bool {
			p := &Page{Limit: penstock.Limit{Messages: limit, Bytes: 1 << 20}}
			l := r.Look(p, r.Box.Buckets, sweep)
			time.Sleep(took)
			for i := range rows {
				seq++
				if err := l.Found(func(dest ...any) error {
					*dest[1].(*time.Time), *dest[2].(*int64) = start.Add(from+time.Duration(i)*time.Millisecond), seq
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			l.Done(margin)
			return l.From.IsZero() && !r.Low.IsZero()
		}
		for i, step := range []struct {
			wait, took, from time.Duration
			rows             int
			sweeps           bool
		}{
			{0, 0, time.Minute, limit + 1, false},
			{0, 0, time.Minute, limit + 1, false},
			{sweep + 1, 0, time.Minute, limit + 1, true}, // more than fits waits, but none before the mark
			{0, 0, time.Minute, limit + 1, false},
			{sweep + 1, 0, time.Second, limit + 1, true}, // before the mark is more than fits
			{0, 0, time.Second, limit + 1, true},
			{0, 0, time.Second, 2, true},
			{0, 0, time.Minute, limit, false},
			{sweep + 1, 3 * time.Second, 0, 0, true}, // so slow that there may be another in half a minute only
			{sweep + 1, 0, 0, 0, false},
			{sweep, 0, 0, 0, true},
			{sweep + 1, 0, 0, 0, true},
		} {
			time.Sleep(step.wait)
			if got := look(step.took, step.rows, step.from); got != step.sweeps && i > 0 {
				t.Errorf("look %d was a sweep: %v, want %v", i, got, step.sweeps)
			}
		}
	})
}
