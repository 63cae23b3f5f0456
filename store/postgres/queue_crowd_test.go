package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// Two hundred workers, each with its own connection, take the jobs of one queue: every job once,
// one of a key at a time, and without a deadlock. How many locks were waited for is reported.
func TestTwoHundredWorkers(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	const workers, keys = 200, 40
	jobs := testseed.Steps(2000)
	server := testserver.StartPostgres(t, "max_connections = 300", "deadlock_timeout = 100ms")
	f := jobsFixtureOn(t, testserver.Database(t, server.URL), penstock.FIFO)
	store := openStore(t, fmt.Sprintf("%s&pool_max_conns=%d&connect_timeout=60", f.URL, workers), postgres.Options{})
	all := make([]penstock.NewJob, jobs)
	for i := range all {
		if i%2 == 0 {
			all[i].Key = fmt.Sprint("key ", i%keys)
		}
	}
	f.enqueue(all...)

	var log crowdLog
	ctx, stop := context.WithCancel(f.Ctx)
	defer stop()
	var crowd sync.WaitGroup
	for range workers {
		crowd.Go(func() {
			queue := store.Queue("jobs")
			for log.ended() < jobs && ctx.Err() == nil {
				claimed, err := queue.Claim(ctx, driver.Claim{Jobs: 3, Lease: time.Hour})
				if err != nil {
					t.Error(err)
					stop()
					return
				}
				leases := log.begin(t, claimed)
				log.end(claimed)
				if held, err := queue.Ack(ctx, leases...); err != nil || len(held) != len(leases) {
					t.Errorf("%d of %d leases held: %v", len(held), len(leases), err)
					stop()
				}
				if len(claimed) == 0 {
					if err := queue.Maintain(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	watched := make(chan struct{})
	var waits []waitingFor
	go func() {
		defer close(watched)
		waits = f.watchLocks(ctx)
	}()
	crowd.Wait()
	stop()
	<-watched
	if n := log.ended(); n != jobs {
		t.Errorf("%d jobs done, want %d", n, jobs)
	}
	for _, w := range waits {
		t.Logf("waited for a lock of the type %s: %d times seen in %d looks, up to %d at once", w.kind, w.seen, w.looks, w.most)
	}
	f.Ctx = context.Background()
	if n := f.Number("select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// crowdLog checks that no job runs twice and no two of a key at a time.
type crowdLog struct {
	mu      sync.Mutex
	done    map[int64]bool
	running map[string]int64
}

func (l *crowdLog) ended() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

func (l *crowdLog) begin(t *testing.T, jobs []penstock.Job) (leases []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done, l.running = map[int64]bool{}, map[string]int64{}
	}
	for _, j := range jobs {
		leases = append(leases, j.Lease)
		if l.done[j.ID] {
			t.Errorf("job %d runs a second time", j.ID)
		}
		if other, busy := l.running[j.Key]; busy && j.Key != "" {
			t.Errorf("job %d of %s runs beside job %d", j.ID, j.Key, other)
		}
		l.running[j.Key] = j.ID
	}
	return leases
}

func (l *crowdLog) end(jobs []penstock.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		delete(l.running, j.Key)
		l.done[j.ID] = true
	}
}

// waitingFor is how often a session was seen to wait for locks of a kind.
type waitingFor struct {
	kind              string
	looks, seen, most int
}

// watchLocks looks at locks that are waited for until ctx ends.
func (f *fixture) watchLocks(ctx context.Context) (all []waitingFor) {
	conn := f.Connect()
	looks := 0
	for ; ctx.Err() == nil; looks++ {
		rows, err := conn.Query(context.Background(), "select locktype, count(*) from pg_locks where not granted group by locktype")
		if err != nil {
			f.Error(err)
			return nil
		}
		var kind string
		var n int
		if _, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error {
			for i := range all {
				if all[i].kind == kind {
					all[i].seen, all[i].most = all[i].seen+n, max(all[i].most, n)
					return nil
				}
			}
			all = append(all, waitingFor{kind: kind, seen: n, most: n})
			return nil
		}); err != nil {
			f.Error(err)
		}
	}
	for i := range all {
		all[i].looks = looks
	}
	return all
}
