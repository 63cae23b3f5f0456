package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var loadCases = slices.Concat(
	named("Load", loadManyWorkers),
	[]testCase{{Name: "ManyWorkersLIFO", Run: loadManyWorkers, Other: true}},
)

// runLog notes the running jobs, and that nothing runs twice at a time.
type runLog struct {
	ended atomic.Int64

	mu      sync.Mutex
	running map[int64]bool
	keys    map[string]bool
	done    map[int64]int
	last    map[string]int64 // by key: the turn of the last that ended
	wrong   []string
}

func newRunLog() *runLog {
	return &runLog{running: map[int64]bool{}, keys: map[string]bool{}, done: map[int64]int{}, last: map[string]int64{}}
}

// turn is which job of its producer this is: the last number of its payload. Ids need not grow.
func turn(j penstock.Job) int64 {
	payload := string(j.Payload)
	n, _ := strconv.ParseInt(payload[strings.LastIndex(payload, "-")+1:], 10, 64)
	return n
}

func (l *runLog) start(j penstock.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.running[j.ID]:
		l.wrong = append(l.wrong, fmt.Sprintf("job %d runs twice at a time", j.ID))
	case l.done[j.ID] > 0:
		l.wrong = append(l.wrong, fmt.Sprintf("job %d runs after it was acked", j.ID))
	case j.Key != "" && l.keys[j.Key]:
		l.wrong = append(l.wrong, fmt.Sprintf("job %d runs beside another of the key %s", j.ID, j.Key))
	case j.Key != "" && turn(j) < l.last[j.Key]:
		l.wrong = append(l.wrong, fmt.Sprintf("job %d of the key %s runs after %d", turn(j), j.Key, l.last[j.Key]))
	}
	l.running[j.ID], l.keys[j.Key] = true, true
}

// end has to be called before the queue learns of it, because the next job of
// the key may start at once.
func (l *runLog) end(j penstock.Job, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, j.ID)
	delete(l.keys, j.Key)
	if done {
		l.done[j.ID]++
		l.last[j.Key] = max(l.last[j.Key], turn(j))
	}
}

// work claims up to n jobs. It ends most, has some tried again, and dies before the end of some.
func (l *runLog) work(e *env, q driver.Queue, rnd *rand.Rand, n int) error {
	jobs, err := q.Claim(e.ctx, driver.Claim{Jobs: n, Lease: suite.LongLease})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		l.start(j)
	}
	for _, j := range jobs {
		fate, held := rnd.IntN(8), []int64{j.Lease}
		l.end(j, fate > 1)
		switch fate {
		case 0:
			held, err = q.Extend(e.ctx, time.Microsecond, j.Lease)
		case 1:
			_, err = q.Retry(e.ctx, j.Lease, 0, "again")
		default:
			held, err = q.Ack(e.ctx, j.Lease)
			l.ended.Add(1)
		}
		if err != nil || len(held) != 1 {
			return fmt.Errorf("the end of job %d: got %d, %w", j.ID, held, err)
		}
	}
	if len(jobs) == 0 {
		return q.Maintain(e.ctx)
	}
	return nil
}

// workers of two processes hand each job that they claim to do, which ends it. wait returns when all is produced, and nothing was found for a while.
func (e *env) workers(n int, produced context.Context, do func(w int, q driver.Queue, j penstock.Job) error) (wait func() error) {
	qs, done := []driver.Queue{e.q, e.Another(e).DriverQueue(queue)}, make(chan error, 1)
	go func() {
		done <- suite.Concurrently(n, func(w int) error {
			for idle := 0; idle < 20 || produced.Err() == nil; idle++ {
				jobs, err := qs[w%2].Claim(e.ctx, driver.Claim{Jobs: 2, Lease: suite.LongLease})
				for _, j := range jobs {
					idle = 0
					err = errors.Join(err, do(w, qs[w%2], j))
				}
				if err = errors.Join(err, qs[w%2].Maintain(e.ctx)); err != nil {
					return err
				}
				if len(jobs) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		})
	}()
	return func() error { return <-done }
}

func (l *runLog) check(e *env, jobs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.wrong {
		e.Error(w)
	}
	suite.Equal(e, len(l.done), jobs, "jobs that were done")
	for id, n := range l.done {
		suite.Equal(e, n, 1, "how often job %d was done", id)
	}
}

// Workers and producers all at once, and some workers die: every job is done once, in the order of its key, and nothing is left. These are the
// invariants of the queue in YugabyteDB's Jepsen suite, mutual exclusion and completeness.
func loadManyWorkers(e *env) {
	const producers, workers = 4, 8
	each := testseed.Steps(150)
	qs := []driver.Queue{e.q, e.Another(e).DriverQueue(queue)}
	log := newRunLog()
	e.set(penstock.QueueSettings{MaxAttempts: new(1000)})
	e.Must(suite.Concurrently(producers+workers, func(i int) error {
		q, rnd := qs[i%2], e.Random(i)
		if i < producers {
			for n := 0; n < each; {
				batch := make([]penstock.NewJob, min(1+rnd.IntN(5), each-n))
				for b := range batch {
					batch[b] = keyed([]string{"", "", "", fmt.Sprint("k", i), "all"}[rnd.IntN(5)], fmt.Sprint(i, "-", n+b))
				}
				if _, err := q.Enqueue(e.ctx, batch...); err != nil {
					return err
				}
				n += len(batch)
			}
			return nil
		}
		for int(log.ended.Load()) < producers*each {
			if err := e.ctx.Err(); err != nil {
				return err
			}
			if err := log.work(e, q, rnd, 1+i%7); err != nil {
				return err
			}
		}
		return nil
	}), "working")
	// Producers run at the same time: of the key that they share, any may come first.
	log.mu.Lock()
	var wrong []string
	for _, w := range log.wrong {
		var turn, last int64
		var key string
		if n, _ := fmt.Sscanf(w, "job %d of the key %s runs after %d", &turn, &key, &last); n != 3 || key != "all" {
			wrong = append(wrong, w)
		}
	}
	log.wrong = wrong
	log.mu.Unlock()
	log.check(e, producers*each)
	e.wantCounts(counts{})
}
