package queuetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var optionCases = slices.Concat(
	named("Options", optionsUnsupported, optionsBad),
	needing(Features{Options: true}, named("Options", optionsCarried, optionsMaxAttempts, optionsMaxAttemptsOfALostLease,
		optionsDeadlinePassed, optionsDeadlineOfAKey, optionsDeadlineOfARetry, optionsDeadlineBeforeARetry, optionsManyPassed)),
	[]testCase{{Name: "DeadlinePassedLIFO", Run: optionsDeadlinePassed, Needs: Features{Options: true}, Other: true}},
)

// A store that cannot keep to an option refuses it, and writes nothing.
func optionsUnsupported(e *env) {
	for _, c := range []struct {
		field string
		has   bool
		job   penstock.NewJob
	}{
		{"unique key", e.features.Unique, penstock.NewJob{UniqueKey: "u"}},
		{"unique key", e.features.Unique, penstock.NewJob{Key: "u", Headers: map[string]string{penstock.HeaderUniqueKey: "u"}}},
		{"max attempts", e.features.Options, penstock.NewJob{MaxAttempts: 2}},
		{"holds", e.features.Barriers, penstock.NewJob{Holds: 1}},
		{"waits for", e.features.Barriers, penstock.NewJob{Headers: map[string]string{penstock.HeaderWaitsFor: "1,2"}}},
		{"deadline", e.features.Options, penstock.NewJob{Headers: map[string]string{penstock.HeaderDeadline: "2100-01-01T00:00:00Z"}}},
	} {
		if c.has {
			continue
		}
		e.BadField("Enqueue", suite.Err(e.q.Enqueue(e.ctx, job("a"), c.job)), c.field)
		e.BadField("SetSchedule", e.Store.SetSchedule(e.ctx, penstock.Schedule{Queue: queue, Name: "s", Cron: "@daily", Job: c.job}), c.field)
	}
	e.want()
}

// An option that is wrong is refused, and nothing is written.
func optionsBad(e *env) {
	header := func(name, value string) penstock.NewJob {
		return penstock.NewJob{Headers: map[string]string{"good": "1", name: value}}
	}
	tx := e.begin()
	for _, b := range []struct {
		field string
		job   penstock.NewJob
	}{
		{"max attempts", penstock.NewJob{MaxAttempts: -1}},
		{"max attempts", header(penstock.HeaderMaxAttempts, "many")},
		{"timeout", penstock.NewJob{Timeout: time.Microsecond}},
		{"timeout", header(penstock.HeaderTimeout, "1m")},
		{"deadline", header(penstock.HeaderDeadline, "tomorrow")},
		{"deadline", header(penstock.HeaderDeadline, "2026-11-27T17:00:00+01:00")},
		{"deadline", header(penstock.HeaderDeadline, "")},
		{"max attempts", header(penstock.HeaderMaxAttempts, "")},
		{"unique key", header(penstock.HeaderUniqueKey, "")},
		{"holds", header(penstock.HeaderHolds, "")},
		{"deadline", penstock.NewJob{Deadline: time.Now(), NotBefore: time.Now().Add(time.Hour)}},
		{"unique key", penstock.NewJob{UniqueKey: "u", Key: "k"}},
		{"unique key", penstock.NewJob{UniqueKey: "a\x00"}},
		{"on conflict", penstock.NewJob{UniqueKey: "u", OnConflict: "merge"}},
		{"on conflict", penstock.NewJob{OnConflict: penstock.OnConflictReplace}},
		{"debounce max", penstock.NewJob{UniqueKey: "u", DebounceMax: time.Second}},
		{"holds", penstock.NewJob{Holds: -1}},
		{"holds", header(penstock.HeaderHolds, "first")},
		{"waits for", header(penstock.HeaderWaitsFor, "1,,2")},
		{"waits for", penstock.NewJob{Holds: 1, WaitsFor: []int64{2, 1}}},
		{"waits for", penstock.NewJob{WaitsFor: []int64{1}, NotBefore: time.Now().Add(time.Hour)}},
		{"on dead", penstock.NewJob{OnDead: penstock.OnDeadRun}},
		{"on dead", penstock.NewJob{WaitsFor: []int64{1}, OnDead: "die"}},
		{"on conflict", penstock.NewJob{UniqueKey: "u", OnConflict: penstock.OnConflictReplace, Holds: 1}},
	} {
		_, err := tx.Tx.Enqueue(e.ctx, queue, job("with a bad one"), b.job)
		if e.features.OptionsInServer {
			if b.job.Timeout != 0 || !b.job.Deadline.IsZero() {
				continue // Go alone refuses a timeout that rounds to none, and a deadline before the job is due
			}
			e.Fails(err, "Enqueue in a transaction with a bad %s", b.field)
			tx.Rollback()
			tx = e.begin()
			continue
		}
		e.BadField("Enqueue in a transaction with a bad "+b.field, err, b.field)
	}
	tx.enqueue(job("still good"))
	tx.Commit()
	e.want("still good")
}

// Options come with the job, whatever else it has. A header says the same as a field.
func optionsCarried(e *env) {
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond) // some clients have no shorter unit
	j := penstock.NewJob{Kind: "k", MaxAttempts: 3, Timeout: 1500 * time.Millisecond, Deadline: deadline, Headers: map[string]string{"h": "1"}}
	want := j.AllHeaders()
	for i, more := range []penstock.NewJob{{}, {Key: "k"}, {DedupKey: "d"}, {NotBefore: time.Now().Add(-time.Second)}, {Priority: 2}} {
		one, two := j, penstock.NewJob{Headers: want}
		one.Key, one.DedupKey, one.NotBefore, one.Priority = more.Key, more.DedupKey, more.NotBefore, more.Priority
		one.Payload, two.Payload = fmt.Appendf(nil, "%d", i), fmt.Appendf(nil, "%d as headers", i)
		tx := e.begin()
		tx.enqueue(one)
		tx.enqueue(two, job(fmt.Sprint(i, " without")))
		tx.Commit()
		for _, got := range e.collect(string(one.Payload), string(two.Payload), fmt.Sprint(i, " without")) {
			if string(got.Payload) == fmt.Sprint(i, " without") {
				e.ack(got)
				continue
			}
			headers := maps.Clone(got.Headers)
			headers[penstock.HeaderDeadline] = want[penstock.HeaderDeadline] // languages write it with more digits or fewer
			if !maps.Equal(headers, want) || got.MaxAttempts() != 3 || got.Timeout() != j.Timeout || !got.Deadline().Equal(deadline) {
				e.Errorf("the job has the headers %v, want %v", got.Headers, want)
			}
			e.ack(got)
		}
	}
}

// A job's limit of attempts counts, whether the queue's is higher or lower.
func optionsMaxAttempts(e *env) {
	for _, of := range []int{1, 4} {
		e.set(penstock.QueueSettings{MaxAttempts: &of})
		e.enqueue(penstock.NewJob{MaxAttempts: 2, Payload: []byte("a")})
		e.retry(e.collect("a")[0], 0, "one")
		dead, err := e.q.Retry(e.ctx, e.collect("a")[0].Lease, 0, "two")
		if err != nil || !dead {
			e.Errorf("the second failure of a job with 2 attempts, in a queue with %d: dead %v, %v", of, dead, err)
		}
	}
	suite.Equal(e, len(e.deadJobs(admin.DeadJobQuery{})), 2, "dead letters")
}

func optionsMaxAttemptsOfALostLease(e *env) {
	e.enqueue(penstock.NewJob{MaxAttempts: 1, Payload: []byte("a")}, penstock.NewJob{Payload: []byte("b")})
	suite.MustEqual(e, len(e.claimAs(driver.Claim{Jobs: 2, Lease: time.Millisecond})), 2, "claimed jobs")
	e.collect("b")
	e.eventually("the job with one attempt is dead", func() bool { return e.status().DeadLetters == 1 })
}

func passed() time.Time { return time.Now().Add(-time.Second) }

// A job whose deadline has passed never begins, does not become a dead letter, and takes nothing from those behind it. One whose deadline
// comes later runs.
func optionsDeadlinePassed(e *env) {
	late := penstock.NewJob{Deadline: passed(), Payload: []byte("late")}
	delayed := late
	delayed.NotBefore = late.Deadline.Add(-time.Second)
	e.enqueue(late, job("a"), delayed, penstock.NewJob{Deadline: time.Now().Add(time.Hour), Payload: []byte("b")}, late)
	e.ack(e.collect("a", "b")...)
	e.eventually("nothing is left", func() bool { e.want(); return e.status().Ready == 0 })
	e.wantCounts(counts{expired: 3})
}

// The next job of its key takes the place of one that expires.
func optionsDeadlineOfAKey(e *env) {
	deadline := time.Now().Add(time.Second)
	e.enqueue(keyed("k", "a"), penstock.NewJob{Key: "k", Deadline: deadline, Payload: []byte("late")}, keyed("k", "b"))
	first := e.want("a")
	e.want() // the others wait now
	e.Eventually("the deadline passes", func() bool { return time.Since(deadline) > 50*time.Millisecond })
	e.ack(first...)
	e.ack(e.collect("b")...)
	e.wantCounts(counts{expired: 1})
}

// Before its deadline a job has attempts, and after it none, though some are left.
func optionsDeadlineOfARetry(e *env) {
	jobs, attempts := int64(0), 0
	for life := 200 * time.Millisecond; attempts < 2; life *= 2 { // until the deadline is late enough for this machine
		deadline := time.Now().Add(life)
		e.enqueue(penstock.NewJob{Deadline: deadline, Payload: []byte("a")})
		jobs, attempts = jobs+1, 0
		e.eventually("the job has two attempts or expires", func() bool {
			for _, j := range e.claim(1) {
				attempts++
				e.retry(j, map[bool]time.Duration{true: max(time.Until(deadline), 0)}[attempts == 2], "again")
			}
			return attempts == 2 || e.status().Expired == jobs
		})
	}
	e.eventually("the job has expired", func() bool { e.want(); return e.status().Expired == jobs })
	e.wantCounts(counts{expired: jobs})
}

// A job that would be tried again after its deadline expires at the deadline. The next one of its key does not wait for longer.
func optionsDeadlineBeforeARetry(e *env) {
	expired := int64(0)
	later := map[string]func(j penstock.Job){"failed": func(j penstock.Job) { e.retry(j, time.Hour, "much later") }}
	if q, gives := e.q.(driver.Releaser); gives {
		later["given back"] = func(j penstock.Job) {
			held := suite.Get(q.Release(e.ctx, time.Hour, j.Lease)).Must(e, "Release")
			suite.Equal(e, len(held), 1, "leases that Release returned")
		}
	}
	for how, end := range later {
		var first []penstock.Job
		var deadline time.Time
		for life := time.Second; len(first) == 0; life *= 2 { // until the deadline is late enough for this machine
			deadline = time.Now().Add(life)
			e.enqueue(penstock.NewJob{Key: how, Deadline: deadline, Payload: []byte("a")})
			if first = e.claim(1); len(first) == 0 {
				expired++
			}
		}
		end(first[0])
		e.enqueue(keyed(how, "b"))
		e.ack(e.collect("b")...)
		if at := time.Now(); at.Before(deadline) {
			e.Errorf("the job behind one that was %s is claimed %v before its deadline", how, deadline.Sub(at))
		}
		expired++
		suite.Equal(e, e.status().Expired, expired, "expired jobs, with one that was %s", how)
	}
}

// Thousands that have expired are passed over by few claims.
func optionsManyPassed(e *env) {
	jobs := make([]penstock.NewJob, 3000)
	for i := range jobs {
		jobs[i].Deadline = passed()
	}
	e.enqueue(jobs...)
	e.enqueue(job("a"))
	e.want("a")
	suite.Equal(e, e.status().Expired, int64(len(jobs)), "expired jobs")
}
