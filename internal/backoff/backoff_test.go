package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/backoff"
)

func TestAfter(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		0: 2 * time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 11: 2048 * time.Second, 12: time.Hour, 13: time.Hour, math.MaxInt: time.Hour,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			got := backoff.After(attempt)
			seen[got] = true
			if got < want*4/5 || got > want*6/5 {
				t.Fatalf("After(%d): got %s, want %s ± 20%%", attempt, got, want)
			}
		}
		if len(seen) < 50 {
			t.Errorf("After(%d): %d different pauses of 100, want jobs to come back apart", attempt, len(seen))
		}
	}
}
