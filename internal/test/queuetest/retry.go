package queuetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var retryCases = named("Retry", retryRunsAgain, retryAfterAPause, retryBackoff, retryLastAttemptIsADeadLetter,
	retryFailuresAreKept)

func retryRunsAgain(e *env) {
	ids := e.enqueue(penstock.NewJob{Key: "k", Group: "g", Priority: 3, Headers: map[string]string{"h": "1"}, Payload: []byte("a")})
	var first penstock.Job
	for attempt := 1; attempt <= 4; attempt++ {
		var claimed []penstock.Job
		e.eventually(fmt.Sprintf("attempt %d is claimed", attempt), func() bool {
			claimed = e.claimAs(driver.Claim{Group: "g", Jobs: 2})
			return len(claimed) > 0
		})
		j := claimed[0]
		if attempt == 1 {
			first = j
		}
		if j.ID != ids[0] || j.Attempt != attempt || j.Key != "k" || j.Group != "g" || j.Priority != 3 || j.Headers["h"] != "1" || string(j.Payload) != "a" || !j.CreatedAt.Equal(first.CreatedAt) {
			e.Fatalf("attempt %d is %+v, want the same job as %+v", attempt, j, first)
		}
		e.retry(j, 0, "again")
		e.MustBe(suite.Err(e.q.Retry(e.ctx, j.Lease, 0, "twice")), penstock.ErrLeaseLost, "a second Retry")
	}
}

func retryAfterAPause(e *env) {
	e.enqueue(job("a"), job("b"))
	claimed := e.want("a", "b")
	e.retry(claimed[0], time.Hour, "later")
	start := time.Now()
	e.retry(claimed[1], 150*time.Millisecond, "soon")
	again := e.collect("b")
	if took := time.Since(start); took < 149*time.Millisecond {
		e.Errorf("a job that was to pause for 150 ms came back after %s", took)
	}
	e.ack(again...)
	e.maintain()
	e.want()
	suite.Equal(e, e.status().Delayed, 1, "delayed jobs of the status")
}

// The queue's own backoff is a pause, and not an hour the first time.
func retryBackoff(e *env) {
	e.enqueue(job("a"))
	claimed := e.want("a")
	start := time.Now()
	e.retry(claimed[0], -1, "x")
	suite.Equal(e, e.collect("a")[0].Attempt, 2, "attempt")
	if took := time.Since(start); took < 1590*time.Millisecond {
		e.Errorf("the first pause took %s, want 2 s ± 20%%", took)
	}
}

func retryLastAttemptIsADeadLetter(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(3)})
	e.enqueue(job("a"))
	for attempt := 1; attempt <= 3; attempt++ {
		j := e.collect("a")[0]
		dead := suite.Get(e.q.Retry(e.ctx, j.Lease, 0, fmt.Sprint("reason ", attempt))).Must(e, "Retry")
		suite.MustEqual(e, dead, attempt == 3, "dead after attempt %d of 3", attempt)
	}
	e.maintain()
	e.want()
	dead := e.deadJobs(admin.DeadJobQuery{})
	if len(dead) != 1 || dead[0].Err() != "reason 3" || dead[0].Job.Attempt != 3 {
		e.Fatalf("the dead letters are %+v, want one of attempt 3 and its reason", dead)
	}
}

func retryFailuresAreKept(e *env) {
	e.enqueue(job("a"))
	const n = penstock.MaxFailures + 3
	for attempt := 1; attempt < n; attempt++ {
		e.retry(e.collect("a")[0], 0, fmt.Sprint("reason ", attempt))
	}
	last := e.collect("a")[0]
	long := strings.Repeat("ü", 3000)
	e.Must(e.q.DeadLetter(e.ctx, last.Lease, long), "DeadLetter")
	d := e.deadJobs(admin.DeadJobQuery{})[0]
	suite.MustEqual(e, len(d.Failures), penstock.MaxFailures, "failures that are kept")
	for i, f := range d.Failures {
		attempt := n - penstock.MaxFailures + 1 + i
		want := fmt.Sprint("reason ", attempt)
		if attempt == n {
			want = long
		}
		if f.Attempt != attempt || !strings.HasPrefix(want, f.Err) || f.Err == "" || f.At.IsZero() {
			e.Errorf("failure %d is attempt %d at %s: %.40q, want attempt %d: %.40q", i, f.Attempt, f.At, f.Err, attempt, want)
		}
	}
}
