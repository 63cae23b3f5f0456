package mysql

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tables"
)

// A job that a producer replaced and put off between the two reads of a claim is on both pages. It gets one lease.
func TestJobOnBothPagesIsTakenOnce(t *testing.T) {
	one := func(id int64) candidate {
		return candidate{Claimed: tables.Claimed{Job: penstock.Job{ID: id, Key: strconv.FormatInt(id, 10)}}}
	}
	page := choose(&queueRow{Seen: tables.NewSeen(false)}, &tables.Round{Window: 100, Jobs: 10}, pages{fresh: []candidate{one(1), one(2)}, tried: []candidate{one(2), one(3)}}, 10)
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

// Each read of a claim has its own snapshot. Two that show different jobs as the first of a key give one lease: here the job 1 was put off between them.
func TestJobsOfAKeyOnBothPagesGetOneLease(t *testing.T) {
	one := func(id int64, key string) candidate {
		return candidate{Claimed: tables.Claimed{TS: time.Unix(id, 0), Job: penstock.Job{ID: id, Key: key}}}
	}
	found := pages{fresh: []candidate{one(1, "k"), one(3, ""), one(4, "")}, heads: []candidate{one(2, "k"), one(5, "l")}}
	var taken []int64
	for _, n := range choose(&queueRow{Seen: tables.NewSeen(false)}, &tables.Round{Window: 100, Jobs: 10}, found, 10) {
		if n.Job.Lease != 0 {
			taken = append(taken, n.Job.ID)
		}
	}
	if want := []int64{1, 3, 4, 5}; !slices.Equal(taken, want) {
		t.Errorf("the jobs %v have leases, want %v", taken, want)
	}
}
