package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogramQuantiles(t *testing.T) {
	h := newHistogram()
	var all []float64
	for range 10_000 {
		took := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
		all = append(all, took.Seconds()*1000)
		h.add(took)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		if got, want := h.quantileMS(q), all[int(q*float64(len(all)-1))]; math.Abs(got-want) > want/200+1e-6 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	h.add(2 * time.Hour)
	none := newHistogram()
	if h.TotalCount() != 10_001 || none.quantileMS(0.5) != 0 || none.meanMS() != 0 {
		t.Error("wrong total, or a quantile or mean of nothing")
	}
}

func TestTimeline(t *testing.T) {
	line := newTimeline(time.Second, 100*time.Millisecond)
	line.start = time.Now()
	for i := range 12 { // the last two end too late
		line.note(line.start.Add(time.Duration(i)*100*time.Millisecond+time.Millisecond), time.Duration(i+1)*time.Millisecond)
	}
	for _, c := range []struct {
		from, to time.Duration
		total    int64
	}{{0, time.Second, 10}, {0, 2 * time.Second, 10}, {0, 0, 1}, {200 * time.Millisecond, 400 * time.Millisecond, 2}, {150 * time.Millisecond, 160 * time.Millisecond, 1}, {150 * time.Millisecond, 400 * time.Millisecond, 2}, {time.Second, time.Second, 1}, {-200 * time.Millisecond, 0, 1}, {-200 * time.Millisecond, 200 * time.Millisecond, 2}} {
		if got := line.between(c.from, c.to).TotalCount(); got != c.total {
			t.Errorf("%s to %s: %d, want %d", c.from, c.to, got, c.total)
		}
	}
}
