package queuetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var modelCases = slices.Concat(
	named("Model", modelRandomWalk),
	[]testCase{{Name: "RandomWalkLIFO", Run: modelRandomWalk, Other: true}},
)

// fate is where the model believes a job to be.
type fate string

const (
	unborn    fate = "written by an open transaction"
	ready     fate = "ready"
	resting   fate = "delayed or retried, perhaps due"
	held      fate = "running"
	mortal    fate = "running with a lease that may have ended"
	dead      fate = "a dead letter"
	ended     fate = "acked"
	withdrawn fate = "cancelled"
	undone    fate = "rolled back"
)

// tracked is one job of the model.
type tracked struct {
	id       int64
	place    int // among all that were written: ids need not grow
	job      penstock.NewJob
	fate     fate
	attempt  int  // of its next claim
	born     int  // step in which it was written
	settled  int  // step in which that was committed
	begun    bool // claimed and not ended: the later ones of its key wait
	moved    bool // it has not stayed where it was written: no order to check
	lease    int64
	until    time.Time // when the lease ends
	history  []string
	notUntil time.Time
}

func (t *tracked) note(step int, what string) {
	t.fate, t.history = fate(what), append(t.history, fmt.Sprint(step, ": ", what))
}

func (t *tracked) alive() bool {
	return t.fate == ready || t.fate == resting || t.fate == held || t.fate == mortal
}

// walk is a random walk and the model that knows the right behaviour of the queue.
type walk struct {
	*env
	rnd    *rand.Rand
	lifo   bool
	stores []driver.QueueStore
	step   int
	all    []*tracked
	byID   map[int64]*tracked
	open   []*walkTx
	paused bool
}

type walkTx struct {
	tx
	jobs []*tracked
}

func modelRandomWalk(e *env) {
	e.set(penstock.QueueSettings{MaxAttempts: new(1_000_000)})
	w := &walk{env: e, rnd: e.Random(0), lifo: e.status().Order == penstock.LIFO, byID: map[int64]*tracked{},
		stores: []driver.QueueStore{e.Store, e.Another(e)}}
	operations, steps := w.operations(), testseed.Steps(1000)
	for w.step = 1; w.step <= steps; w.step++ {
		operations[w.rnd.IntN(len(operations))]()
	}
	w.finish()
}

// wrong fails the test with the model's knowledge about some jobs.
func (w *walk) wrong(what string, jobs ...*tracked) {
	var b strings.Builder
	for _, t := range jobs {
		fmt.Fprintf(&b, "\n  job %d key=%q group=%q priority=%d: %s", t.id, t.job.Key, t.job.Group, t.job.Priority, strings.Join(t.history, "; "))
	}
	w.Fatalf("step %d: %s%s", w.step, what, b.String())
}

// take checks the jobs of a claim against the model and makes them run. Jobs of a
// claim are taken one after another, as if claimed alone.
func (w *walk) take(jobs []penstock.Job, group string, as fate) {
	now := time.Now()
	got := make([]*tracked, len(jobs))
	for i, j := range jobs {
		t := w.byID[j.ID]
		if t == nil {
			w.Fatalf("step %d: claimed job %d, which nobody enqueued", w.step, j.ID)
		}
		got[i] = t
		switch {
		case w.paused:
			w.wrong("claimed while the queue is paused", t)
		case t.fate != ready && t.fate != resting && t.fate != mortal:
			w.wrong(fmt.Sprintf("claimed job %d, which is %s", j.ID, t.fate), t)
		case t.job.NotBefore.After(now) || t.notUntil.After(now):
			w.wrong(fmt.Sprintf("claimed job %d before its time", j.ID), t)
		case j.Attempt != t.attempt:
			w.wrong(fmt.Sprintf("claimed job %d as attempt %d, want %d", j.ID, j.Attempt, t.attempt), t)
		case j.Group != group || j.Group != t.job.Group || j.Key != t.job.Key || j.Priority != t.job.Priority || string(j.Payload) != string(t.job.Payload):
			w.wrong(fmt.Sprintf("claimed %+v, which is not what was enqueued", j), t)
		case i > 0 && jobs[i-1].Priority > j.Priority:
			w.wrong("claimed jobs are not in the order of their priorities", got[i-1], t)
		}
		w.checkKey(t, now)
		if t.fate == mortal {
			t.moved = true
		}
		t.note(w.step, string(as))
		t.lease, t.until, t.begun, t.attempt = j.Lease, j.LeaseUntil, true, t.attempt+1
	}
	for _, t := range got {
		w.checkOrder(t)
	}
}

// checkKey: nothing else of the key runs, no earlier job must be tried again, and nothing goes
// before it.
func (w *walk) checkKey(t *tracked, now time.Time) {
	if t.job.Key == "" {
		return
	}
	for _, o := range w.all {
		if o == t || o.job.Key != t.job.Key {
			continue
		}
		if o.fate == held || o.fate == mortal && now.Before(o.until) {
			w.wrong(fmt.Sprintf("job %d was claimed beside job %d of its key", t.id, o.id), o, t)
		}
		if o.begun && o.place < t.place {
			w.wrong(fmt.Sprintf("job %d was claimed before job %d of its key, which is to be tried again", t.id, o.id), o, t)
		}
		if !t.begun && !t.moved && o.fate == ready && !o.moved && o.settled < t.born {
			w.wrong(fmt.Sprintf("job %d was claimed before job %d of its key", t.id, o.id), o, t)
		}
	}
}

// checkOrder: no job without a key that was there all the time should have been
// claimed instead of this one.
func (w *walk) checkOrder(t *tracked) {
	if t.moved || t.job.Key != "" {
		return
	}
	for _, o := range w.all {
		if o.fate != ready || o.moved || o.job.Key != "" || o.job.Group != t.job.Group || o.settled == w.step {
			continue
		}
		first := o.settled < t.born
		if w.lifo {
			first = t.settled < o.born
		}
		if late := o.settled > o.born; o.job.Priority < t.job.Priority && !late || o.job.Priority == t.job.Priority && first && !late {
			w.wrong(fmt.Sprintf("job %d was claimed and not job %d", t.id, o.id), t, o)
		}
	}
}

// finish ends every transaction and claims until every job has ended.
func (w *walk) finish() {
	for len(w.open) > 0 {
		w.endTx(true)
	}
	if w.paused {
		w.pauseOrResume()
	}
	for _, t := range w.all {
		if t.fate == held {
			w.settleOne(t, w.ackOne)
		}
	}
	w.eventually("every job has ended", func() bool {
		for _, g := range groupNames {
			for jobs := w.claimGroup(g, 50, held, suite.LongLease); len(jobs) > 0; jobs = w.claimGroup(g, 50, held, suite.LongLease) {
				for _, j := range jobs {
					w.settleOne(w.byID[j.ID], w.ackOne)
				}
			}
		}
		return !slices.ContainsFunc(w.all, func(t *tracked) bool { return t.alive() })
	})
	w.checkDead()
	suite.Equal(w, w.left(), 0, "jobs left when every one has ended")
}

// checkDead compares the dead letters.
func (w *walk) checkDead() {
	var want, got []int64
	for _, t := range w.all {
		if t.fate == dead {
			want = append(want, t.id)
		}
	}
	for _, d := range w.deadJobs(admin.DeadJobQuery{}) {
		got = append(got, d.Job.ID)
	}
	slices.Sort(want)
	suite.MustEqual(w, got, want, "step %d: dead letters", w.step)
}

// checkGroups compares how many jobs and dead letters each group has.
func (w *walk) checkGroups() {
	want, got := map[string][2]int64{}, map[string][2]int64{}
	for _, t := range w.all {
		n := want[t.job.Group]
		if t.alive() {
			n[0]++
		} else if t.fate == dead {
			n[1]++
		}
		if n != [2]int64{} {
			want[t.job.Group] = n
		}
	}
	for name, g := range w.groupStatus("", 100) {
		got[name] = [2]int64{g.Ready + g.Running + g.Delayed + g.Waiting, g.DeadLetters}
		if g.More {
			return
		}
	}
	suite.MustEqual(w, got, want, "step %d: jobs and dead letters of the groups", w.step)
}
