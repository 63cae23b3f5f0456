package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// enqueueOrders makes orders, each with a job.
func enqueueOrders(ctx context.Context, s *sqlite.Store, path string) error {
	return makeOrders(ctx, path, "enqueued ", func(tx *sql.Tx, i int, payload []byte) error {
		_, err := s.Queue("jobs").EnqueueTx(ctx, tx, penstock.NewJob{Key: []string{"", "a", "b"}[i%3], Payload: payload})
		return err
	})
}

// workOrders does jobs in pairs, by claim and ack, with leases that end soon once
// it is dead. Every seventh job fails the first time. It prints what it begins and
// what is acked.
func workOrders(ctx context.Context, s *sqlite.Store) error {
	q := s.Queue("jobs")
	for {
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: 2, Lease: 300 * time.Millisecond, Worker: "child"})
		if err != nil {
			return err
		}
		var leases []int64
		for _, j := range jobs {
			fmt.Printf("began %s %d %s\n", j.Payload, j.ID, j.Key)
			if j.ID%7 == 0 && j.Attempt == 1 {
				if _, err := q.Retry(ctx, j.Lease, 5*time.Millisecond, "not yet"); err != nil && !errors.Is(err, penstock.ErrLeaseLost) {
					return err
				}
				continue
			}
			leases = append(leases, j.Lease)
		}
		held, err := q.Ack(ctx, leases...)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			for _, h := range held {
				if j.Lease == h {
					fmt.Printf("acked %s %d %s\n", j.Payload, j.ID, j.Key)
				}
			}
		}
	}
}

// workTxOrders marks orders as shipped in the transactions that end their jobs.
func workTxOrders(ctx context.Context, s *sqlite.Store) error {
	return sqlite.WorkTx(ctx, s, "jobs", func(ctx context.Context, tx *sql.Tx, j penstock.Job) error {
		if _, err := tx.ExecContext(ctx, `update orders set shipped = shipped + 1 where id = ?`, string(j.Payload)); err != nil {
			return err
		}
		return say("began %s %d %s", j.Payload, j.ID, j.Key)
	}, work.Options{Lease: time.Second})
}

// Producers and workers are killed -9 in the middle of it. Every order that was
// committed gets its job done, no other; what was acked does not come again; and
// within each key the jobs began in order.
func TestKilledWhileWorking(t *testing.T) {
	testseed.Soak(t)
	path, _, q := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	mustExec(t, app, `create table orders (id integer primary key autoincrement, total integer, shipped integer not null default 0)`)
	type life struct {
		lines []string
		err   error
	}
	var lines []string
	rounds, interrupted := 0, 0 // jobs that a worker had when it was killed
	for ; rounds < 3 || interrupted == 0 && rounds < 30; rounds++ {
		lives := make(chan life, 3)
		for i, job := range []string{childEnqueue, childWork, childWork} {
			c := start(t, job, path)
			go func() {
				lines, err := c.killAfter([]int{150, 40 + 7*rounds, 61 + 5*rounds}[i])
				lives <- life{lines, err}
			}()
		}
		for range 3 {
			l := <-lives
			if l.err != nil {
				t.Fatal(l.err)
			}
			lines = append(lines, l.lines...)
		}
		interrupted += scan[int](t, app, `select count(*) from penstock_leases`)
	}
	done := map[string]int{}
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, "acked "); ok {
			order, _, _ := strings.Cut(rest, " ")
			if done[order]++; done[order] > 1 {
				t.Errorf("order %s was acked %d times", order, done[order])
			}
		}
	}
	// The rest runs here. A job that a dead worker had begun comes back.
	last := map[string]int64{}
	for scan[int](t, app, `select count(*) from penstock_queue_jobs`) > 0 {
		jobs := claimJobs(t, q, 50)
		var leases []int64
		for _, j := range jobs {
			if j.Key != "" {
				if j.ID <= last[j.Key] {
					t.Errorf("of key %s job %d came after %d", j.Key, j.ID, last[j.Key])
				}
				last[j.Key] = j.ID
			}
			done[string(j.Payload)]++
			leases = append(leases, j.Lease)
		}
		if held, err := q.Ack(t.Context(), leases...); err != nil || len(held) != len(leases) {
			t.Fatalf("%d of %d were held, %v", len(held), len(leases), err)
		}
	}
	orders := scan[int](t, app, `select count(*) from orders`)
	for order, n := range done {
		// An ack that was committed may not have been printed any more; then the
		// order is missing here, and is not twice.
		if n != 1 || scan[int](t, app, `select count(*) from orders where id = ?`, order) != 1 {
			t.Errorf("the job of order %s ended %d times", order, n)
		}
	}
	if len(done) > orders || len(done) < orders-rounds*2*2 {
		t.Errorf("%d orders were committed, the jobs of %d are known to have ended", orders, len(done))
	}
	if interrupted == 0 {
		t.Error("no worker was killed with jobs: the test shows nothing")
	}
	for _, table := range []string{"ready", "keyed", "busy", "scheduled", "leases", "histories", "dead_jobs"} {
		if n := scan[int](t, app, `select count(*) from penstock_`+table); n != 0 {
			t.Errorf("%d rows are left in penstock_%s", n, table)
		}
	}
	if check := scan[string](t, app, `pragma integrity_check`); check != "ok" {
		t.Errorf("integrity_check: %s", check)
	}
}

// Workers with the handler in the transaction are killed -9: every order is
// shipped exactly once.
func TestKilledWhileWorkingInTransactions(t *testing.T) {
	testseed.Soak(t)
	path, s, _ := newQueue(t, penstock.FIFO)
	app := openApp(t, path)
	mustExec(t, app, `create table orders (id integer primary key autoincrement, total integer, shipped integer not null default 0)`)
	for range 300 {
		tx, err := app.Begin()
		if err != nil {
			t.Fatal(err)
		}
		done, err := tx.Exec(`insert into orders (total) values (1)`)
		if err != nil {
			t.Fatal(err)
		}
		order, _ := done.LastInsertId()
		if _, err := s.Queue("jobs").EnqueueTx(t.Context(), tx, penstock.NewJob{Key: []string{"", "a"}[order%2], Payload: strconv.AppendInt(nil, order, 10)}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	again := false
	for round := 0; scan[int](t, app, `select count(*) from penstock_queue_jobs`) > 0; round++ {
		if round < 4 {
			n := 20 + 7*round
			if _, err := start(t, childWorkTx, path, diesWith(n+10*round)).killAfter(n); err != nil { // the first one in a transaction
				t.Fatal(err)
			}
			again = again || scan[int](t, app, `select count(*) from penstock_leases`) > 0
			continue
		}
		runWorkTx(t, open(t, path), app, func(ctx context.Context, tx *sql.Tx, j penstock.Job) error {
			_, err := tx.ExecContext(ctx, `update orders set shipped = shipped + 1 where id = ?`, string(j.Payload))
			return err
		})
	}
	if n := scan[int](t, app, `select count(*) from orders where shipped <> 1`); n != 0 {
		t.Errorf("%d of 300 orders were not shipped exactly once", n)
	}
	if !again {
		t.Error("no worker was killed with jobs: the test shows nothing")
	}
}

// runWorkTx works until every job that is not a dead letter has ended.
func runWorkTx(t *testing.T, s *sqlite.Store, app *sql.DB, h sqlite.TxHandler) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- sqlite.WorkTx(ctx, s, "jobs", h, work.Options{Logger: slog.New(slog.DiscardHandler)})
	}()
	for scan[int](t, app, `select count(*) from penstock_queue_jobs`) > 0 {
		select {
		case err := <-ended:
			t.Fatalf("WorkTx ended by itself: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
