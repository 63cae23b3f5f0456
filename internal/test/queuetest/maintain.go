package queuetest

import (
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var maintainCases = needing(Features{Reads: true}, named("Maintain", maintainReadsNothingThatWaits))

// Maintenance reads what is due. With this many jobs of each kind, none of them due, it reads a few entries more than of an empty queue.
func maintainReadsNothingThatWaits(e *env) {
	many := 100
	if testseed.Long() {
		many = 100_000
	}
	reads := func() float64 {
		before := e.Reads(e)
		e.maintain()
		return e.Reads(e) - before
	}
	most := 50 + min(reads(), reads(), reads())
	claimed := func(n int, lease time.Duration, end func(jobs []penstock.Job)) {
		for done := 0; done < n; {
			e.enqueue(make([]penstock.NewJob, min(1000, n-done))...)
			jobs := e.claimAs(driver.Claim{Jobs: 1000, Lease: lease})
			end(jobs)
			done += len(jobs)
		}
	}
	claimed(100, suite.LongLease, func(jobs []penstock.Job) {
		for _, j := range jobs {
			e.retry(j, 24*time.Hour, "not now")
		}
	})
	claimed(many, suite.LongLease, func(jobs []penstock.Job) { e.release(24*time.Hour, jobs...) })
	e.set(penstock.QueueSettings{MaxAttempts: new(1)})
	claimed(many, time.Millisecond, func([]penstock.Job) {}) // they die
	e.eventually("all are dead letters", func() bool { return len(e.deadJobs(admin.DeadJobQuery{Limit: many})) == many })
	claimed(many, suite.LongLease, func([]penstock.Job) {}) // they run
	kinds := []func(j *penstock.NewJob, i int){
		func(j *penstock.NewJob, i int) { j.NotBefore = time.Now().Add(24 * time.Hour) },
		func(j *penstock.NewJob, i int) {
			j.NotBefore, j.Key = time.Now().Add(24*time.Hour), fmt.Sprint("key ", i)
		},
		func(j *penstock.NewJob, i int) { j.Key = fmt.Sprint("another key ", i) },
		func(j *penstock.NewJob, i int) { j.Key = "k" },
		func(j *penstock.NewJob, i int) { j.DedupKey = fmt.Sprint("dedup ", i) },
		func(j *penstock.NewJob, i int) { j.Group = fmt.Sprint("group ", i) },
		func(j *penstock.NewJob, i int) { j.Priority = i%32 - 16 },
	}
	for _, kind := range kinds {
		for done := 0; done < many; {
			batch := make([]penstock.NewJob, min(1000, many-done))
			for i := range batch {
				kind(&batch[i], done+i)
			}
			e.enqueue(batch...)
			done += len(batch)
		}
	}
	e.claim(1)
	// Now and then a store scans everything, and rows that it has just deleted are scanned until no snapshot needs them. Otherwise it reads only
	// due jobs.
	n := 0.0
	defer func() { e.Logf("%.0f entries, at most %.0f", n, most) }()
	e.eventually(fmt.Sprintf("maintenance reads at most %.0f entries next to %d jobs of each kind, of which nothing is due", most, many), func() bool {
		n = reads()
		return n <= most
	})
}
