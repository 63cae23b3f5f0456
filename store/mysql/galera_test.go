package mysql_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// Each node of a cluster has producers, a relay and a worker. A transaction that the certification of its commit refuses is run
// again, and a node that is killed loses nothing that was confirmed.
func TestGalera(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	cluster := testserver.StartGalera(t, 3)
	var stores []*mysql.Store
	var migrating sync.WaitGroup
	for _, node := range cluster.Nodes {
		s := openStore(t, node.URL, mysql.Options{})
		stores = append(stores, s)
		migrating.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	migrating.Wait()
	for _, err := range []error{stores[0].CreateOutbox(t.Context(), "orders"), stores[1].CreateQueue(t.Context(), "jobs", penstock.FIFO)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	messages, jobs := newLedger(), newLedger()
	produce, stopProducing := context.WithCancel(t.Context())
	consume, stopConsuming := context.WithCancel(t.Context())
	var producers, consumers sync.WaitGroup
	defer consumers.Wait()
	defer producers.Wait()
	defer stopConsuming()
	defer stopProducing()
	for n, s := range stores {
		producers.Go(func() {
			for i := 0; produce.Err() == nil; i++ {
				what := fmt.Sprint(n, "-", i)
				if s.Publish(produce, "orders", penstock.Message{Key: fmt.Sprint(n, "-", i%5), Payload: []byte(what)}) == nil {
					messages.note(messages.kept, what)
				}
				if _, err := s.Queue("jobs").Enqueue(produce, penstock.NewJob{Payload: []byte(what)}); err == nil {
					jobs.note(jobs.kept, what)
				}
			}
		})
		consumers.Go(func() { relayAll(consume, s, messages) })
		consumers.Go(func() { workAll(consume, s.Queue("jobs"), jobs) })
	}
	progress := func() {
		for at := len(jobs.snapshot()); len(jobs.snapshot()) < at+50 && t.Context().Err() == nil; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, node := range cluster.Nodes[1:] {
		progress()
		if err := node.Kill(); err != nil {
			t.Fatal(err)
		}
		progress() // on the others
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
	}
	runsOneAtATime(t, stores)
	again := func() (n int64) {
		for _, s := range stores {
			n += s.Retries()["deadlock"]
		}
		return n
	}
	progress()
	for deadline := time.Now().Add(2 * time.Minute); again() == 0 && time.Now().Before(deadline); {
		progress() // sooner or later two nodes claim the same job
	}
	stopProducing()
	producers.Wait()
	for deadline := time.Now().Add(2 * time.Minute); len(messages.lost())+len(jobs.lost()) > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	stopConsuming()
	consumers.Wait()
	t.Logf("%d messages and %d jobs were confirmed, %d transactions run again", len(messages.kept), len(jobs.kept), again())
	if len(messages.overtaken) > 0 {
		t.Errorf("%d came after later ones of their keys: %.10q", len(messages.overtaken), messages.overtaken)
	}
	if lost := append(messages.lost(), jobs.lost()...); len(lost) > 0 || len(jobs.kept) < 150 {
		t.Errorf("%d were confirmed and did not come: %.10q", len(lost), lost)
	}
	if again() == 0 {
		t.Error("no transaction was run again, though three nodes claimed the same jobs")
	}
}

// runsOneAtATime: of a queue with max_running 1 no two nodes claim a job at the same time, though a lock is a node's own.
func runsOneAtATime(t *testing.T, stores []*mysql.Store) {
	must(t, stores[0].CreateQueue(t.Context(), "narrow", penstock.FIFO), stores[0].SetQueue(t.Context(), "narrow", penstock.QueueSettings{MaxRunning: new(1)}))
	const total = 60
	jobs := make([]penstock.NewJob, total)
	for i := range jobs {
		jobs[i].Group = fmt.Sprint("g", i%len(stores)) // of the same job a second lease would be refused in any case
	}
	_, err := stores[0].Queue("narrow").Enqueue(t.Context(), jobs...)
	must(t, err)
	var running, done atomic.Int32
	var workers sync.WaitGroup
	for i, s := range stores {
		workers.Go(func() {
			q := s.Queue("narrow")
			for deadline := time.Now().Add(3 * time.Minute); done.Load() < total && !t.Failed() && time.Now().Before(deadline); {
				jobs, err := q.Claim(t.Context(), driver.Claim{Group: fmt.Sprint("g", i), Jobs: 1, Lease: time.Hour})
				if err != nil || len(jobs) == 0 {
					continue
				}
				if n := running.Add(1); n > 1 {
					t.Errorf("%d jobs run", n)
				}
				time.Sleep(20 * time.Millisecond) // the job's work, during which the other nodes try
				running.Add(-1)
				for held := []int64{}; len(held) == 0 && t.Context().Err() == nil; {
					if held, err = q.Ack(t.Context(), jobs[0].Lease); err == nil {
						break
					}
				}
				done.Add(1)
			}
		})
	}
	workers.Wait()
	if done.Load() != total {
		t.Errorf("%d of %d jobs were done", done.Load(), total)
	}
}
