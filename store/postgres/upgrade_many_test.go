package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// A database with many queues is brought up to date while workers of any language run on some of them: they lose no
// job, and do none twice. A thousand queues are to take a minute at most, on a quiet machine.
func TestUpgradeOfManyQueuesWhileWorkersRun(t *testing.T) {
	t.Parallel()
	queues, url := 10, ""
	if testseed.Long() {
		queues, url = 1000, testserver.Database(t, testserver.StartPostgres(t, "max_locks_per_transaction = 512").URL)
	} else {
		url = freshDatabase(t)
	}
	f := fixtureOn(t, url, postgres.Options{})
	for i := range queues {
		f.Exec("select penstock.create_queue($1, 'fifo', 2, 65536)", fmt.Sprint("many ", i))
	}
	running, stop := context.WithCancel(f.Ctx)
	defer stop()
	var group sync.WaitGroup
	workers := make([]*steadyWorker, 5)
	for i := range workers {
		w := &steadyWorker{fixture: f, conn: f.Connect(), queue: fmt.Sprint("many ", i*queues/len(workers)), begun: make(chan struct{}), seen: map[int]int{}}
		workers[i] = w
		f.Exec("select penstock.enqueue($1, '-1')", w.queue)
		f.Must(f.Conn.QueryRow(f.Ctx, "select lease from penstock.claim($1, 1, '1 hour')", w.queue).Scan(&w.held))
		group.Go(func() { w.work(running) })
		select {
		case <-w.begun:
		case <-f.Ctx.Done():
			t.Fatal("no job runs: ", w.err)
		}
	}
	f.Exec("update penstock._functions set hash = 'of another version'")
	f.Exec("create function penstock.\"_many 0.gone\"() returns void language plpgsql as 'begin end'")
	started := time.Now()
	f.Must(f.store.Migrate(f.Ctx))
	t.Logf("%d queues were brought up to date in %s", queues, time.Since(started).Round(time.Millisecond))
	for _, w := range workers {
		f.Exec("select penstock.ack($1, $2)", w.queue, w.held)
	}
	stop()
	group.Wait()
	for _, w := range workers {
		t.Logf("%s: %d jobs, and %d statements were tried again: %v", w.queue, w.made, w.again, w.err)
		for n := range w.made {
			if w.seen[n] != 1 {
				t.Errorf("%s: job %d of %d ran %d times", w.queue, n, w.made, w.seen[n])
			}
		}
		f.wantText("(0,0,0,0,0)", "select (ready, running, delayed, waiting, dead)::text from penstock.queue_status($1)", w.queue)
	}
	wantDifferences(t, f.differences())
}

// steadyWorker enqueues a job, claims what there is and ends it, again and again, in SQL. What fails it tries again.
type steadyWorker struct {
	*fixture
	conn  *pgx.Conn
	queue string
	held  int64         // the lease of a job that runs all the time
	begun chan struct{} // closed once a job has run
	made  int
	seen  map[int]int // how often a job ran
	again int
	err   error // the last one
}

// work continues until ctx ends and nothing is left.
func (w *steadyWorker) work(ctx context.Context) {
	for w.Ctx.Err() == nil {
		going := ctx.Err() == nil
		if going {
			w.try(func() error {
				_, err := w.conn.Exec(w.Ctx, "select penstock.enqueue($1, $2)", w.queue, fmt.Sprint(w.made))
				return err
			})
			w.made++
		}
		var jobs []steadyJob
		w.try(func() error {
			rows, _ := w.conn.Query(w.Ctx, "select lease, convert_from(payload, 'UTF8')::int from penstock.claim($1, 10, '1 hour')", w.queue) // an error is also the rows'
			var err error
			jobs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[steadyJob])
			return err
		})
		for _, j := range jobs {
			w.seen[j.Number]++
			w.try(func() error {
				_, err := w.conn.Exec(w.Ctx, "select penstock.ack($1, $2)", w.queue, j.Lease)
				return err
			})
		}
		if w.made == 1 {
			close(w.begun)
		}
		if len(jobs) == 0 && !going {
			return
		}
	}
}

type steadyJob struct {
	Lease  int64
	Number int
}

func (w *steadyWorker) try(statement func() error) {
	for err := statement(); err != nil && w.Ctx.Err() == nil; err = statement() {
		w.again, w.err = w.again+1, err
	}
}
