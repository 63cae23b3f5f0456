package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var uniqueCases = slices.Concat(
	named("Unique", uniqueUntilItEnds, uniqueTold, uniqueReplace, uniqueReplaceItsTime, uniqueDebounce,
		uniqueRunningIsNotReplaced, uniqueRetriedBeforeTheSecond, uniqueExpired, uniqueHiddenByALateOne, uniqueBehindALateOne, uniqueDeadTwin, uniqueOtherKeys, uniqueRace,
		uniqueAtOnce, uniqueRunsWithTheLast),
	needing(Features{ConcurrentWriters: true}, named("Unique", uniqueRollback, uniqueOldSnapshot)),
	[]testCase{{Name: "ReplaceLIFO", Run: uniqueReplace, Other: true}},
)

func init() {
	for i := range uniqueCases {
		uniqueCases[i].Needs.Unique = true
	}
}

func unique(key, payload string) penstock.NewJob {
	return penstock.NewJob{UniqueKey: key, Payload: []byte(payload)}
}

func replacing(key, payload string) penstock.NewJob {
	return penstock.NewJob{UniqueKey: key, OnConflict: penstock.OnConflictReplace, Payload: []byte(payload)}
}

// twin enqueues a job that must be a duplicate of the one with the id, or, of 0, none.
func (e *env) twin(what string, id int64, j penstock.NewJob) int64 {
	made := suite.Get(e.q.Enqueue(e.ctx, j)).Must(e, "Enqueue")
	if made[0].Deduplicated != (id != 0) || id != 0 && made[0].ID != id {
		e.Fatalf("%s: got %+v, want a duplicate of %d (0: a new job)", what, made[0], id)
	}
	return made[0].ID
}

// However long it takes, and whatever happens to it meanwhile, there is one. It is its own key.
func uniqueUntilItEnds(e *env) {
	id := e.twin("the first", 0, unique("u", "a"))
	e.twin("while it waits", id, unique("u", "b"))
	first := e.want("a")
	suite.Equal(e, first[0].Key, "u", "key")
	e.twin("while it runs", id, unique("u", "b"))
	e.retry(first[0], time.Hour, "later")
	e.twin("while it waits to be tried again", id, unique("u", "b"))
	e.cancel(1, id)
	e.twin("after a cancel", 0, unique("u", "c"))
	e.ack(e.collect("c")...)
	e.twin("after an ack", 0, unique("u", "d"))
	e.Must(e.q.DeadLetter(e.ctx, e.collect("d")[0].Lease, "no good"), "DeadLetter")
	later := unique("u", "e")
	later.NotBefore = time.Now().Add(time.Hour)
	id = e.twin("after a dead letter", 0, later)
	e.twin("while it is delayed", id, unique("u", "f"))
	e.want()
	e.cancel(1, id)
	id = e.twin("after another cancel", 0, unique("u", "g"))
	e.release(time.Hour, e.collect("g")...)
	e.twin("after a release", id, unique("u", "h"))
}

func uniqueTold(e *env) {
	made, err := e.q.Enqueue(e.ctx, unique("u", "a"), job("b"), unique("v", "c"), unique("u", "again"), unique("v", "again"), unique("w", "d"))
	e.told("new jobs and duplicates within a batch", made, err, false, false, false, true, true, false)
	if made[3].ID != made[0].ID || made[4].ID != made[2].ID {
		e.Errorf("got %+v, want the ids of the first ones", made)
	}
	made, err = e.q.Enqueue(e.ctx, unique("x", "e"), job("f"), unique("w", "again"), unique("y", "g"))
	e.told("a batch with one that was there", made, err, false, false, true, false)
	t := e.begin()
	made, err = t.Tx.Enqueue(e.ctx, queue, unique("z", "h"))
	e.told("a new one in a transaction", made, err, false)
	made, err = t.Tx.Enqueue(e.ctx, queue, unique("z", "again"))
	e.told("one of the same transaction", made, err, true)
	made, err = t.Tx.Enqueue(e.ctx, queue, unique("u", "again"))
	e.told("one of an earlier transaction", made, err, true)
	t.Commit()
	both := unique("u", "again")
	both.DedupKey = "d"
	made, err = e.q.Enqueue(e.ctx, both)
	e.told("one with a dedup key, too", made, err, true)
	e.ack(e.collect("a", "b", "c", "d", "e", "f", "g", "h")...)
	made, err = e.q.Enqueue(e.ctx, both)
	e.told("the same after the first has ended, within the window", made, err, true)
}

// The job that waits has the new payload and headers, the same id and the same place, and begins anew.
func uniqueReplace(e *env) {
	first := replacing("u", "a")
	first.Group, first.Priority, first.Headers = "g", 3, map[string]string{"h": "1", "only": "first"}
	id := e.enqueue(first)[0]
	behind := job("b")
	behind.Group, behind.Priority = "g", 3
	e.enqueue(behind)
	next := replacing("u", "again")
	next.Kind, next.Headers = "k", map[string]string{"h": "2"}
	e.twin("one that waits", id, next)
	claimed := e.claimAs(driver.Claim{Group: "g", Jobs: 3})
	suite.MustEqual(e, len(claimed), 2, "claimed jobs")
	i := slices.IndexFunc(claimed, func(j penstock.Job) bool { return j.Key == "u" })
	if got := claimed[i]; i != 0 && !e.lifo() || string(got.Payload) != "again" || got.ID != id || got.Headers["h"] != "2" || got.Headers["only"] != "" || got.Kind() != "k" || got.Group != "g" || got.Priority != 3 || got.Attempt != 1 {
		e.Errorf("got %+v in place %d", got, i)
	}
	e.retry(claimed[i], time.Hour, "once")
	next.Payload = []byte("and again")
	e.twin("one that is to be tried again", id, next)
	var again []penstock.Job
	e.eventually("it runs", func() bool { again = e.claimAs(driver.Claim{Group: "g", Jobs: 3}); return len(again) > 0 })
	if got := again[0]; len(again) != 1 || got.ID != id || string(got.Payload) != "and again" || got.Attempt != 1 {
		e.Errorf("got %+v, want the first attempt", again)
	}
	made, err := e.q.Enqueue(e.ctx, replacing("v", "c"), replacing("v", "d"), job("e"), replacing("v", "f"))
	e.told("replaced within a batch", made, err, false, true, false, true)
	e.ack(e.collect("e", "f")...)
}

// lifo: the queue is one.
func (e *env) lifo() bool { return e.status().Order == penstock.LIFO }

func uniqueReplaceItsTime(e *env) {
	id := e.twin("the first", 0, replacing("u", "a"))
	later := replacing("u", "b")
	later.NotBefore = time.Now().Add(time.Hour)
	e.twin("later", id, later)
	e.want()
	e.wantCounts(counts{delayed: 1})
	later.NotBefore, later.Payload = time.Now().Add(2*time.Hour), []byte("c")
	e.twin("still later", id, later)
	e.want()
	e.twin("at once", id, replacing("u", "d"))
	claimed := e.collect("d")
	if claimed[0].ID != id || claimed[0].Attempt != 1 {
		e.Errorf("got %+v", claimed)
	}
	e.ack(claimed...)
}

// Each enqueue puts it off, up to the limit, which counts from the first.
func uniqueDebounce(e *env) {
	debounced := func(payload string, after, most time.Duration) penstock.NewJob {
		return penstock.NewJob{UniqueKey: "u", OnConflict: penstock.OnConflictDebounce, DebounceMax: most, NotBefore: time.Now().Add(after), Payload: []byte(payload)}
	}
	id := e.twin("the first", 0, debounced("a", 50*time.Millisecond, time.Hour))
	e.twin("the second", id, debounced("b", time.Hour, time.Hour))
	suite.Equal(e, e.status().Delayed, 1, "delayed jobs of the status")
	e.twin("the third", id, debounced("c", time.Hour, 30*time.Minute))
	e.want()
	e.twin("the fourth", id, debounced("d", time.Hour, 100*time.Millisecond)) // else it would come in an hour
	claimed := e.collect("d")
	e.twin("while it runs", 0, debounced("e", time.Hour, 0))
	e.ack(claimed...)
	e.want()
}

// One more waits behind the job that runs. A third one replaces that.
func uniqueRunningIsNotReplaced(e *env) {
	id := e.twin("the first", 0, replacing("u", "a"))
	running := e.want("a")
	second := e.twin("while the first runs", 0, replacing("u", "b"))
	if second == id {
		e.Fatalf("the second job has the id of the first, %d", id)
	}
	e.twin("a third", second, replacing("u", "c"))
	e.twin("one to be ignored", second, unique("u", "d"))
	e.want() // the second waits
	e.twin("a fifth, with the second put behind the first", second, replacing("u", "e"))
	delayed := replacing("u", "f")
	delayed.NotBefore = time.Now().Add(time.Hour)
	e.twin("a sixth for later", second, delayed)
	e.twin("a seventh at once", second, replacing("u", "g"))
	e.want()
	e.enqueue(job("other"))
	e.ack(e.want("other")...)
	e.ack(running...)
	got := e.collect("g")
	suite.Equal(e, got[0].ID, second, "id")
	e.ack(got...)
	e.want()
}

// The first one is tried again while the second one waits: it comes first, others of its queue are not held up, and none is lost.
func uniqueRetriedBeforeTheSecond(e *env) {
	id := e.twin("the first", 0, replacing("u", "a"))
	first := e.want("a")
	second := e.twin("the second", 0, replacing("u", "b"))
	e.retry(first[0], 0, "once")
	e.enqueue(job("other"))
	claimed := e.collect("a", "other")
	e.twin("a third", second, replacing("u", "c"))
	e.ack(claimed...)
	claimed = e.collect("c")
	if claimed[0].ID != second || id == second {
		e.Errorf("got %+v, want the id %d", claimed, second)
	}
	e.ack(claimed...)
}

func uniqueExpired(e *env) {
	late := unique("u", "late")
	late.Deadline = passed()
	e.enqueue(late)
	e.want()
	e.twin("after it has expired", 0, unique("u", "a"))
	e.ack(e.collect("a")...)
}

// A job whose deadline has passed waits until a claim comes to it. Meanwhile it hides no job with its unique key, which would be lost.
func uniqueHiddenByALateOne(e *env) {
	for _, tried := range []bool{false, true} {
		late := unique("u", "late")
		late.Deadline = passed()
		if tried {
			late.Deadline = time.Now().Add(time.Second)
		}
		e.enqueue(late)
		if tried {
			e.retry(e.collect("late")[0], time.Hour, "once")
			e.Eventually("the deadline passes", func() bool { return time.Since(late.Deadline) > 50*time.Millisecond })
		}
		e.enqueue(unique("u", "a"))
		e.enqueue(unique("u", "b"))
		e.ack(e.want("a")...)
		e.want()
	}
	suite.Equal(e, e.left(), 0, "jobs left")
}

// A job that was claimed before its deadline has no other attempt after it. So it hides no job either, which runs once it has ended: if its attempt fails, if its
// worker dies, and if it is done.
func uniqueBehindALateOne(e *env) {
	for _, end := range []string{"done", "fails", "dies"} {
		var first []penstock.Job
		var late penstock.NewJob
		for life := time.Second; len(first) == 0; life *= 2 { // until the deadline is late enough for this machine
			late = unique("u", "late")
			late.Deadline = time.Now().Add(life)
			e.enqueue(late)
			first = e.claim(1)
		}
		e.Eventually("the deadline passes", func() bool { return time.Since(late.Deadline) > 50*time.Millisecond })
		id := e.twin("after the deadline of one that runs", 0, unique("u", end))
		e.twin("a third", id, unique("u", "third"))
		e.want()
		switch end {
		case "done":
			e.ack(first...)
		case "fails":
			e.retry(first[0], 0, "once")
		default:
			e.expire(first[0])
		}
		e.ack(e.collect(end)...)
		e.eventually("nothing is left", func() bool { e.want(); return e.left() == 0 })
	}
	late := unique("u", "late")
	late.Deadline = passed()
	e.enqueue(late, unique("u", "in the same call"), unique("u", "b"))
	e.ack(e.collect("in the same call")...)
	e.enqueue(late)
	e.enqueue(unique("u", "in another call"), unique("u", "b"))
	e.ack(e.collect("in another call")...)
	if s := e.status(); e.left()+s.DeadLetters > 0 {
		e.Errorf("the status is %+v, want no job", s)
	}
}

// A dead letter stays one while a job with its unique key has not ended, and others run.
func uniqueDeadTwin(e *env) {
	dead := func(j penstock.NewJob) int64 {
		id := e.enqueue(j)[0]
		e.Must(e.q.DeadLetter(e.ctx, e.collect(string(j.Payload))[0].Lease, "no good"), "DeadLetter")
		return id
	}
	first, other := dead(unique("u", "a")), dead(job("other"))
	twin := e.twin("one with a dead twin", 0, unique("u", "b"))
	n, err := e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{first}})
	if err == nil || n != 0 {
		e.Errorf("RetryDeadJobs of the twin of a waiting job: %d, %v, want an error", n, err)
	}
	n, err = e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{first, other}})
	if err != nil || n != 1 {
		e.Errorf("RetryDeadJobs of it and another: %d, %v, want 1", n, err)
	}
	claimed := e.collect("b", "other")
	if letters := e.deadJobs(admin.DeadJobQuery{}); len(letters) != 1 || letters[0].Job.ID != first {
		e.Errorf("the dead letters are %+v, want job %d", letters, first)
	}
	if n, err = e.Store.RetryDeadJobs(e.ctx, admin.DeadJobQuery{Queue: queue, IDs: []int64{first}}); err == nil {
		e.Errorf("RetryDeadJobs of the twin of job %d, which runs: %d, want an error", twin, n)
	}
	e.ack(claimed...)
	dead(unique("u", "c"))
	e.retryDead(1, admin.DeadJobQuery{})
	e.twin("one that was dead", first, unique("u", "d"))
	e.ack(e.collect("a")...)
}

func uniqueOtherKeys(e *env) {
	e.Must(e.Store.CreateQueue(e.ctx, "other", penstock.FIFO), "CreateQueue")
	e.enqueue(unique("u", "a"), unique("v", "b"), keyed("u", "c"))
	made, err := e.Store.DriverQueue("other").Enqueue(e.ctx, unique("u", "d"))
	e.told("in another queue", made, err, false)
	e.ack(e.want("a", "b")...)
	e.twin("a job whose key it is, and which is not unique", 0, unique("u", "e"))
	e.ack(e.collect("c")...)
	e.ack(e.collect("e")...)
}

func uniqueRace(e *env) { e.race(unique("u", "a")) }

// One that meets another which is rolled back then is not lost.
func uniqueRollback(e *env) {
	t := e.begin()
	t.enqueue(unique("u", "never"))
	done := make(chan error, 1)
	go func() {
		_, err := e.q.Enqueue(e.ctx, unique("u", "a"))
		done <- err
	}()
	select {
	case err := <-done:
		e.Fatalf("an Enqueue beside a transaction with the same unique key did not wait: %v", err)
	case <-time.After(50 * time.Millisecond): // only a broken store makes a difference
	}
	t.Rollback()
	e.Must(<-done, "Enqueue")
	e.ack(e.collect("a")...)
}

// A transaction sees jobs that came, and that ended, after its snapshot was taken.
func uniqueOldSnapshot(e *env) {
	t := e.begin()
	made, err := t.Tx.Enqueue(e.ctx, queue, unique("v", "v"))
	e.told("the first in a transaction", made, err, false)
	id := e.twin("one of a later transaction", 0, unique("u", "a"))
	made, err = t.Tx.Enqueue(e.ctx, queue, unique("u", "again"))
	if e.told("its twin", made, err, true); made[0].ID != id {
		e.Errorf("the twin of %d has the id %d", id, made[0].ID)
	}
	e.ack(e.collect("a")...)
	made, err = t.Tx.Enqueue(e.ctx, queue, unique("u", "b"))
	e.told("one after that has ended", made, err, false)
	made, err = t.Tx.Enqueue(e.ctx, queue, replacing("u", "c"))
	e.told("its own is replaced", made, err, true)
	t.Commit()
	e.ack(e.collect("v", "c")...)
}

// Producers, and workers that end jobs in every way, meet at a few keys. Of each key one runs at a time, at most one more waits, and each job that
// was added ends once.
func uniqueAtOnce(e *env) {
	const keys, producers, each, workers = 3, 3, 60, 3
	other := e.Another(e)
	var mu sync.Mutex
	added, running := map[int64]int{}, map[string]int64{}
	modes := []penstock.OnConflict{"", penstock.OnConflictReplace, penstock.OnConflictDebounce}
	produced, stop := context.WithCancel(e.ctx)
	defer stop()
	var random []*rand.Rand // of each worker
	for w := range workers {
		random = append(random, e.Random(100+w))
	}
	wait := e.workers(workers, produced, func(w int, q driver.Queue, j penstock.Job) error {
		mu.Lock()
		id, there := running[j.Key]
		running[j.Key] = j.ID
		mu.Unlock()
		if there {
			return fmt.Errorf("job %d of %s runs beside %d", j.ID, j.Key, id)
		}
		time.Sleep(time.Duration(random[w].IntN(3)) * time.Millisecond) // so that some run while others are enqueued
		how := random[w].IntN(10)
		if how == 0 && j.Attempt >= 20 {
			how = 9
		}
		mu.Lock()
		delete(running, j.Key)
		if how > 1 {
			added[j.ID]--
		}
		mu.Unlock()
		switch how {
		case 0:
			return suite.Err(q.Retry(e.ctx, j.Lease, time.Duration(random[w].IntN(2))*time.Millisecond, "once more"))
		case 1:
			return suite.Err(q.(driver.Releaser).Release(e.ctx, 0, j.Lease))
		}
		return suite.Err(q.Ack(e.ctx, j.Lease))
	})
	err := suite.Concurrently(producers, func(p int) error {
		q, rng := []driver.Queue{e.q, other.DriverQueue(queue)}[p%2], e.Random(p)
		for range each {
			j := penstock.NewJob{UniqueKey: fmt.Sprint("u", rng.IntN(keys)), OnConflict: modes[rng.IntN(3)]}
			if rng.IntN(2) == 0 {
				j.NotBefore = time.Now().Add(time.Duration(rng.IntN(20)) * time.Millisecond)
			}
			made, err := q.Enqueue(e.ctx, j)
			if err != nil {
				return err
			}
			if !made[0].Deduplicated {
				mu.Lock()
				added[made[0].ID]++
				mu.Unlock()
			}
			status, err := e.Store.QueueStatus(e.ctx, queue)
			if err != nil {
				return err
			}
			if s := status[0]; s.Ready+s.Running+s.Delayed+s.Waiting > 2*keys {
				return fmt.Errorf("of %d keys there are jobs: %+v", keys, s)
			}
		}
		return nil
	})
	stop()
	e.Must(errors.Join(err, wait()), "producers and workers")
	for id, n := range added {
		suite.Equal(e, n, 0, "how often job %d was added more than it ended", id)
	}
	e.maintain()
	e.wantCounts(counts{})
}

// A job that was replaced runs with its last payload and as its first attempt, however close to the replacement a worker claims it.
func uniqueRunsWithTheLast(e *env) {
	const keys, each = 3, 60
	var mu sync.Mutex
	last, ran := map[int64]string{}, map[int64]string{}
	produced, stop := context.WithCancel(e.ctx)
	defer stop()
	wait := e.workers(2, produced, func(_ int, q driver.Queue, j penstock.Job) error {
		mu.Lock()
		ran[j.ID] = fmt.Sprintf("%s, attempt %d", j.Payload, j.Attempt)
		mu.Unlock()
		return suite.Err(q.Ack(e.ctx, j.Lease))
	})
	err := suite.Concurrently(keys, func(p int) error {
		for n := range each {
			payload := fmt.Sprint(p, ".", n)
			made, err := e.q.Enqueue(e.ctx, replacing(fmt.Sprint("u", p), payload))
			if err != nil {
				return err
			}
			mu.Lock()
			last[made[0].ID] = payload + ", attempt 1"
			mu.Unlock()
		}
		return nil
	})
	stop()
	e.Must(errors.Join(err, wait()), "producers and workers")
	for id, want := range last {
		suite.Equal(e, ran[id], want, "payload and attempt of job %d", id)
	}
}
