package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
)

// A worker from before a copy was restored ends no job that another one has there: leases
// of the two have different numbers.
func TestLeasesOfARestoredCopy(t *testing.T) {
	ctx := t.Context()
	_, s, app := newFile(t, sqlite.Options{})
	if err := s.CreateQueue(ctx, "jobs", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Queue("jobs").Enqueue(ctx, make([]penstock.NewJob, 100)...); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	mustExec(t, app, `vacuum into ?`, copied)
	seen := map[int64]bool{}
	for _, store := range []*sqlite.Store{s, open(t, copied)} {
		for range 3 { // claims in a row, which may come within one microsecond
			jobs, err := store.Queue("jobs").Claim(ctx, penstock.Claim{Jobs: 30, Lease: time.Hour})
			if err != nil || len(jobs) != 30 {
				t.Fatalf("%d jobs, %v", len(jobs), err)
			}
			for _, j := range jobs {
				if seen[j.Lease] {
					t.Errorf("lease %d is given twice", j.Lease)
				}
				seen[j.Lease] = true
			}
		}
	}
}
