package measure

import (
	"testing"
	"time"
)

func TestQueue(t *testing.T) {
	db := database(t)
	r, err := Queue(t.Context(), QueueConfig{Setup: db, Ops: QueueOps, Batches: []int{1, 7}, Workers: []int{1, 3}, Jobs: 60, Longest: time.Minute, Payload: 200})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 5*(2+1)*2+2*2+2*2+1 {
		t.Fatalf("got %+v", r)
	}
	for _, c := range r.Cells {
		if c.Penstock <= 0 || c.Baseline <= 0 || c.Ratio <= 0 || (c.RatioLeased > 0) != (c.Op == OpClaim || c.Op == OpWork) || (c.RatioPlain > 0) != (c.Op == OpBusiness) {
			t.Errorf("got %+v", c)
		}
	}
}

// A cell that has no time left ends, and what it has done is right.
func TestQueueTimeIsUp(t *testing.T) {
	db := database(t)
	r, err := Queue(t.Context(), QueueConfig{Setup: db, Ops: []string{OpBusiness, OpInsert, OpClaim, OpWork}, Batches: []int{2}, Workers: []int{2}, Jobs: 500, Longest: time.Millisecond})
	if err != nil || len(r.Cells) != 6 {
		t.Errorf("got %+v, %v", r, err)
	}
}
