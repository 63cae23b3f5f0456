package memory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// jobQueue is one queue. A job that has not ended is in exactly one of ready,
// scheduled, leases and, if it waits for its key, key.waiting alone.
type jobQueue struct {
	order     penstock.QueueOrder
	settings  settings
	seq       int64 // the last id drawn
	jobs      map[int64]*job
	ready     map[lane][]*job // may run now, by place
	scheduled map[int64]*job  // by id: not due
	leases    map[int64]*job  // by lease: running
	keys      map[string]*key
	dead      map[int64]*deadJob
	dedup     map[string]first
	schedules map[string]*penstock.Schedule
}

type settings struct {
	paused      bool
	maxAttempts int
	maxRunning  int
	dedupWindow time.Duration
}

// lane is where jobs differ by their age only.
type lane struct {
	group    string
	priority int
}

// job is one that has not ended.
type job struct {
	penstock.Job       // Attempt is how many have begun; Lease 0 unless it runs
	place        int64 // in its lane: the id, unless it was sent back from the dead
	failures     []penstock.Failure
	due          time.Time
	worker       string
}

// key is one that a job has. The first of waiting is also ready, unless the key
// is busy.
type key struct {
	waiting []*job // not begun, by id
	busy    *job   // begun and not ended: it runs, or is to be tried again
}

type deadJob struct {
	job
	at time.Time
}

// first is the job that a dedup key stands for.
type first struct {
	id int64
	at time.Time
}

func newJobQueue(order penstock.QueueOrder) *jobQueue {
	return &jobQueue{
		order:    order,
		settings: settings{maxAttempts: 25, dedupWindow: time.Hour},
		jobs:     map[int64]*job{}, ready: map[lane][]*job{}, scheduled: map[int64]*job{}, leases: map[int64]*job{},
		keys: map[string]*key{}, dead: map[int64]*deadJob{}, dedup: map[string]first{}, schedules: map[string]*penstock.Schedule{},
	}
}

func byPlace(j *job, place int64) int { return cmp.Compare(j.place, place) }
func byID(j *job, id int64) int       { return cmp.Compare(j.ID, id) }

// write makes a job of what was enqueued; nobody sees it until it is added. Of a
// duplicate it returns the first one's id and no job.
func (q *jobQueue) write(n *penstock.NewJob, now time.Time) (int64, *job) {
	if id, found := q.duplicate(n.DedupKey, now); found {
		return id, nil
	}
	q.seq++
	return q.seq, &job{
		Job: penstock.Job{ID: q.seq, Key: n.Key, Group: n.Group, Priority: n.Priority, CreatedAt: now,
			Headers: headers(n.Headers), Payload: slices.Clone(n.Payload)},
		place: q.seq, due: n.NotBefore,
	}
}

// duplicate returns the job that a dedup key stands for, if it does.
func (q *jobQueue) duplicate(dedupKey string, now time.Time) (id int64, found bool) {
	f, found := q.dedup[dedupKey]
	return f.id, found && now.Sub(f.at) < q.settings.dedupWindow
}

func headers(h map[string]string) map[string]string {
	if len(h) == 0 {
		return nil
	}
	return maps.Clone(h)
}

// add takes in a job whose transaction has committed, or that comes back.
func (q *jobQueue) add(j *job, now time.Time) {
	q.jobs[j.ID] = j
	if j.due.After(now) {
		q.scheduled[j.ID] = j
		return
	}
	q.arrive(j)
}

// arrive is called when a job could run, but for its key.
func (q *jobQueue) arrive(j *job) {
	if j.Key == "" {
		q.makeReady(j)
		return
	}
	k := q.keys[j.Key]
	if k == nil {
		k = &key{}
		q.keys[j.Key] = k
	}
	if k.busy == j {
		q.makeReady(j)
		return
	}
	i, _ := slices.BinarySearchFunc(k.waiting, j.ID, byID)
	k.waiting = slices.Insert(k.waiting, i, j)
	if k.busy == nil && i == 0 { // it takes the place of the one that was first
		if len(k.waiting) > 1 {
			q.unready(k.waiting[1])
		}
		q.makeReady(j)
	}
}

func (q *jobQueue) makeReady(j *job) {
	l := lane{j.Group, j.Priority}
	i, _ := slices.BinarySearchFunc(q.ready[l], j.place, byPlace)
	q.ready[l] = slices.Insert(q.ready[l], i, j)
}

func (q *jobQueue) unready(j *job) {
	l := lane{j.Group, j.Priority}
	if i, found := slices.BinarySearchFunc(q.ready[l], j.place, byPlace); found {
		q.ready[l] = slices.Delete(q.ready[l], i, i+1)
	}
	if len(q.ready[l]) == 0 {
		delete(q.ready, l)
	}
}

// next takes the job of a lane that is to run, nil if there is none.
func (q *jobQueue) next(l lane) *job {
	jobs := q.ready[l]
	if len(jobs) == 0 {
		return nil
	}
	j := jobs[0]
	if q.order == penstock.LIFO {
		j = jobs[len(jobs)-1]
		q.ready[l] = jobs[:len(jobs)-1]
	} else {
		q.ready[l] = jobs[1:]
	}
	if len(q.ready[l]) == 0 {
		delete(q.ready, l)
	}
	return j
}

// begin gives a ready job to a worker.
func (q *jobQueue) begin(j *job, lease int64, c driver.Claim, now time.Time) {
	if k := q.keys[j.Key]; k != nil && k.busy != j {
		k.waiting = slices.Delete(k.waiting, 0, 1)
		k.busy = j
	}
	j.Attempt++
	j.Lease, j.LeaseUntil, j.worker = lease, now.Add(c.Lease), c.Worker
	q.leases[lease] = j
}

// end forgets a job, wherever it is, and lets the next one of its key go on.
func (q *jobQueue) end(j *job) {
	delete(q.jobs, j.ID)
	delete(q.scheduled, j.ID)
	delete(q.leases, j.Lease)
	q.unready(j)
	k := q.keys[j.Key]
	if k == nil {
		return
	}
	wasFirst := k.busy == j
	if wasFirst {
		k.busy = nil
	} else if i, found := slices.BinarySearchFunc(k.waiting, j.ID, byID); found {
		k.waiting = slices.Delete(k.waiting, i, i+1)
		wasFirst = i == 0 && k.busy == nil
	}
	if wasFirst && len(k.waiting) > 0 {
		q.makeReady(k.waiting[0])
	}
	if k.busy == nil && len(k.waiting) == 0 {
		delete(q.keys, j.Key)
	}
}

// giveBack takes a running job from its worker, to run again when it is due.
func (q *jobQueue) giveBack(j *job, due, now time.Time) {
	delete(q.leases, j.Lease)
	j.Lease, j.LeaseUntil, j.worker, j.due = 0, time.Time{}, "", due
	q.add(j, now)
}

// fail ends an attempt and reports whether it was the last.
func (q *jobQueue) fail(j *job, due, now time.Time, reason string, final bool) (dead bool) {
	j.failures = append(j.failures, penstock.Failure{Attempt: j.Attempt, At: now, Err: reason})
	j.failures = j.failures[max(0, len(j.failures)-penstock.MaxFailures):]
	if !final && j.Attempt < q.settings.maxAttempts {
		q.giveBack(j, due, now)
		return false
	}
	q.end(j)
	j.Lease, j.LeaseUntil = 0, time.Time{}
	q.dead[j.ID] = &deadJob{job: *j, at: now}
	return true
}

// size is about what the queue takes.
func (q *jobQueue) size() (n int64) {
	n = 1024
	count := func(j *job) {
		n += 256 + int64(len(j.Key)+len(j.Group)+len(j.Payload))
		for k, v := range j.Headers {
			n += int64(len(k) + len(v))
		}
	}
	for _, j := range q.jobs {
		count(j)
	}
	for _, d := range q.dead {
		count(&d.job)
	}
	return n
}
