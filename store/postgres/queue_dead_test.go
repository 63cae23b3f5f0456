package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// Dead letters that were written by hand, with what no queue takes, are listed as what they are. They stay where all should be tried again,
// and the others run; an operator who tries one of them is told why.
func TestDeadLettersWrittenByHand(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	ids := f.enqueue(texts("a", "headers", "b", "times", "key", "c")...)
	claimed, err := f.queue.Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Hour})
	f.Must(err)
	for _, j := range claimed {
		f.Must(f.queue.DeadLetter(f.Ctx, j.Lease, "no"))
	}
	f.Exec(`update penstock._dead_job set headers = '[1]' where id = $1`, ids[1])
	f.Exec(`update penstock._dead_job set created_at = '-infinity', died_at = 'infinity' where id = $1`, ids[3])
	f.Exec(`update penstock._dead_job set key = repeat('k', 2000) where id = $1`, ids[4])
	all := admin.DeadJobQuery{Queue: "jobs"}
	dead, err := f.store.DeadJobs(f.Ctx, all)
	f.Must(err)
	if len(dead) != 6 || !strings.Contains(dead[1].Err(), "headers cannot be read") || dead[3].At.Year() != 9999 {
		t.Fatalf("the dead letters are %+v", dead)
	}
	found, err := f.store.FindJobs(f.Ctx, admin.Find{In: "jobs", Limit: 10, ID: strconv.FormatInt(ids[1], 10)})
	if err != nil || len(found) != 1 {
		t.Errorf("found %+v, %v, want the one whose headers cannot be read", found, err)
	}
	if n, err := f.store.RetryDeadJobs(f.Ctx, all); n != 4 || err != nil {
		t.Fatalf("RetryDeadJobs: got %d, %v, want 4", n, err)
	}
	for _, id := range []int64{ids[1], ids[4]} {
		if n, err := f.store.RetryDeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "jobs", IDs: []int64{id}}); n != 0 || err == nil {
			t.Errorf("RetryDeadJobs of %d: got %d, %v, want an error", id, n, err)
		}
	}
	f.Exec("insert into penstock.jobs (attempt, payload) values (2147483647, 'd')")
	claimed, err = f.queue.Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Hour})
	f.Must(err)
	if got := strings.Join(payloads(claimed), " "); got != "a b times c d" {
		t.Errorf("claimed %q", got)
	}
}
