package measure

import (
	"testing"
	"time"
)

func TestSteady(t *testing.T) {
	db := database(t)
	r, err := Steady(t.Context(), SteadyConfig{Setup: db, Rate: 200, Duration: time.Second, Concurrency: 10, Payload: 200})
	if err != nil {
		t.Fatal(err)
	}
	if l := r.LatencyMS; l == nil || l.Messages != 180 || l.To != "handler" || l.P50 > l.P99 || r.Enqueued <= 0 {
		t.Errorf("got %+v, %+v", r, l)
	}
	if r.CPUSecondsPer100k != nil && (r.NotIdleSecondsPer100k == nil || *r.NotIdleSecondsPer100k <= 0 || r.CPU.Cores < 1) {
		t.Errorf("CPU time of the whole, but of parts %+v", r.CPU)
	}
	if b := r.ByHand; b == nil || b.LatencyMS == nil || b.LatencyMS.Messages != 180 || b.Enqueued <= 0 || (b.CPUSecondsPer100k == nil) != (r.CPUSecondsPer100k == nil) {
		t.Errorf("by hand: %+v", r.ByHand)
	}
	jobs, last := 0.0, 0.0
	for _, i := range r.Intervals {
		jobs += i.PerSecond * (i.At - last)
		last = i.At
	}
	if len(r.Intervals) != 20 || jobs < 195 || jobs > 200.5 {
		t.Errorf("the intervals have %.1f jobs of 200: %+v", jobs, r.Intervals)
	}
}

func TestBusyTime(t *testing.T) {
	busy, idle, ok := busyTime("cpu  100 20 30 4000 500 6 7 80 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
	if want, rest := 163*time.Second/userHZ, 4580*time.Second/userHZ; !ok || busy != want || idle != rest {
		t.Errorf("got %s, %s, %v, want %s, %s", busy, idle, ok, want, rest)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu0 1 2 3 4 5 6 7", "cpu a b c d e f g"} {
		if _, _, ok := busyTime(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}
