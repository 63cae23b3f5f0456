package mysql

import (
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// A job that a producer replaced and put off between the two reads of a claim is on both pages. It gets one lease.
func TestJobOnBothPagesIsTakenOnce(t *testing.T) {
	one := func(id int64) candidate {
		return candidate{Claimed: tables.Claimed{Job: penstock.Job{ID: id, Key: "k"}}, keyed: true}
	}
	page := choose(&queueRow{Seen: tables.NewSeen(false)}, &tables.Round{Window: 100, Jobs: 10}, []candidate{one(1), one(2)}, []candidate{one(2), one(3)}, 10)
	leases := map[int64]int{}
	for _, n := range page {
		if n.Job.Lease != 0 {
			leases[n.Job.ID]++
		}
	}
	if len(leases) != 3 || leases[1] != 1 || leases[2] != 1 || leases[3] != 1 {
		t.Errorf("the jobs have these numbers of leases: %v, want one each", leases)
	}
}
