package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
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
			jobs, err := store.Queue("jobs").Claim(ctx, driver.Claim{Jobs: 30, Lease: time.Hour})
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

// A claim that ends leases of others first gives its own from then on. A trigger makes that slow, and notes when it was done.
func TestLeaseBeginsAfterMaintenance(t *testing.T) {
	ctx := t.Context()
	_, s, app := newFile(t, sqlite.Options{})
	if err := s.CreateQueue(ctx, "jobs", penstock.FIFO); err != nil {
		t.Fatal(err)
	}
	q := s.Queue("jobs")
	if _, err := q.Enqueue(ctx, make([]penstock.NewJob, 2)...); err != nil {
		t.Fatal(err)
	}
	claim := func() time.Time {
		t.Helper()
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		return jobs[0].LeaseUntil
	}
	claim()
	mustExec(t, app, "update penstock_leases set until = 0")
	mustExec(t, app, "create table noted (n integer, at text)")
	mustExec(t, app, `create trigger slow after delete on penstock_leases begin
		insert into noted select count(*), null from (with recursive c(n) as (select 1 union all select n + 1 from c where n < 200000) select n from c);
		insert into noted values (null, strftime('%Y-%m-%dT%H:%M:%fZ'));
	end`)
	begins := claim().Add(-time.Hour)
	var at string
	if err := app.QueryRowContext(ctx, "select max(at) from noted").Scan(&at); err != nil {
		t.Fatal(err)
	}
	if noted, err := time.Parse(time.RFC3339, at); err != nil || begins.Before(noted) {
		t.Errorf("the lease begins at %s, before the maintenance was done at %s, %v", begins, noted, err)
	}
}
