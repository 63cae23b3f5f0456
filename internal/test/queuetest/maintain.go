package queuetest

import (
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

var maintainCases = []testCase{
	{name: "ReadsNothingThatWaits", run: maintainBounded, needs: Features{Reads: true}},
}

// Maintenance reads what is due. Next to so many jobs of each kind, of which nothing is, it reads a few entries for each of its steps.
func maintainBounded(e *env) {
	const many, most = 100, 50
	claimed := func(end func(j penstock.Job)) {
		e.enqueue(make([]penstock.NewJob, many)...)
		for _, j := range e.claim(many) {
			end(j)
		}
	}
	claimed(func(j penstock.Job) { e.retry(j, 24*time.Hour, "not now") })
	claimed(func(j penstock.Job) { e.must(e.q.DeadLetter(e.ctx, j.Lease, "never"), "DeadLetter") })
	claimed(func(penstock.Job) {}) // they run
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
		batch := make([]penstock.NewJob, many)
		for i := range batch {
			kind(&batch[i], i)
		}
		e.enqueue(batch...)
	}
	e.claim(1)
	e.maintain() // what is done once, or now and then
	before := e.Reads(e)
	e.maintain()
	if n := e.Reads(e) - before; n > most {
		e.Errorf("maintenance reads %.0f entries next to %d jobs of each kind, of which nothing is due, want at most %d", n, many, most)
	} else {
		e.Logf("%.0f entries", n)
	}
}
