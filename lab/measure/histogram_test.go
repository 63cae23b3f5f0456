package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	last := -1
	for ns := time.Duration(0); ns < 1<<44; ns += 1 + ns/300 {
		at := bucket(ns)
		if at < last || at > last+1 {
			t.Fatalf("%d ns are in bucket %d, after %d", ns, at, last)
		}
		last = at
		if off := math.Abs(float64(middle(at) - ns)); off > float64(ns)/250 {
			t.Fatalf("%d ns are taken for %d", ns, middle(at))
		}
	}
	if bucket(-time.Second) != 0 || bucket(math.MaxInt64) != octaves*buckets-1 {
		t.Error("what is out of range is in no bucket")
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var one, two histogram
	var all []float64
	for i := range 10_000 {
		took := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
		all = append(all, took.Seconds()*1000)
		if i%2 == 0 {
			one.add(took)
		} else {
			two.add(took)
		}
	}
	one.merge(&two)
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		if got, want := one.quantileMS(q), quantile(all, q); math.Abs(got-want) > want/200+1e-6 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if one.total != 10_000 || new(histogram).quantileMS(0.5) != 0 {
		t.Error("wrong total, or a quantile of nothing")
	}
}

func TestTimeline(t *testing.T) {
	line := newTimeline(time.Second, 100*time.Millisecond)
	line.start = time.Now()
	s := &scribe{timeline: line}
	for i := range 12 { // the last two end too late
		s.note(line.start.Add(time.Duration(i)*100*time.Millisecond+time.Millisecond), time.Duration(i+1)*time.Millisecond)
	}
	s.flush()
	for _, c := range []struct {
		from, to time.Duration
		total    int64
	}{{0, time.Second, 10}, {0, 2 * time.Second, 10}, {0, 0, 1}, {200 * time.Millisecond, 400 * time.Millisecond, 2}, {150 * time.Millisecond, 160 * time.Millisecond, 1}, {150 * time.Millisecond, 400 * time.Millisecond, 2}, {time.Second, time.Second, 1}, {-200 * time.Millisecond, 0, 1}, {-200 * time.Millisecond, 200 * time.Millisecond, 2}} {
		if got := line.between(c.from, c.to).total; got != c.total {
			t.Errorf("%s to %s: %d, want %d", c.from, c.to, got, c.total)
		}
	}
}
