package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/rocksdb"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// One server for all of these, one after another: its counters are of all that happens in it.
func TestMyRocksAlone(t *testing.T) {
	t.Parallel()
	has(t, "RocksDB")
	m := testserver.StartMariaDB(t)
	for name, test := range map[string]func(t *testing.T, m *testserver.MariaDB){
		"QueueIsFlat": queueIsFlat, "OutboxIsFlat": outboxIsFlat, "AdoptIsFlat": adoptIsFlat, "DeletedIsPassedOver": deletedIsPassedOver,
	} {
		t.Run(name, func(t *testing.T) { test(t, m) })
	}
}

// rocks is a server whose counters nothing else moves.
type rocks struct {
	*testing.T
	url string
	db  *sql.DB
}

func newRocks(t *testing.T, m *testserver.MariaDB) *rocks {
	r := &rocks{T: t, url: m.URL}
	r.db = application(t, m.URL)
	r.exec("create database penstock")
	t.Cleanup(func() { r.exec("drop database penstock") })
	return r
}

func (r *rocks) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rocks) exec(statement string, args ...any) {
	r.Helper()
	_, err := r.db.Exec(statement, args...)
	r.must(err)
}

// per says what each of n costs, done by fn.
func (r *rocks) per(n int, fn func()) (steps, seeks float64) {
	r.Helper()
	before, err := rocksdb.Read(r.Context(), r.db)
	r.must(err)
	fn()
	after, err := rocksdb.Read(r.Context(), r.db)
	r.must(err)
	after = after.Since(before)
	return float64(after.Steps()) / float64(n), float64(after.Seek) / float64(n)
}

func (r *rocks) store() *mysql.Store {
	// Nothing commits late here, and what time decides is left out: looking again for it.
	s := openStore(r.T, r.url, mysql.Options{Engine: "RocksDB", Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
	r.must(s.Migrate(r.Context()))
	return s
}

// The most that a call may cost, however many rows were deleted: see DESIGN.md. A claim seeks a row of each priority,
// and as many rows again (its queue, leases, positions, the job itself). Each row is stepped over a few times: it is read,
// found deleted once, and counted among the leases that a second leaves.
const (
	priorities   = penstock.MaxPriority - penstock.MinPriority + 1
	dequeueSeeks = 2 * priorities
	dequeueSteps = 20
	messageSeeks = 1
	messageSteps = 10
)

// A dequeue takes few of RocksDB's steps, however many jobs are deleted.
func queueIsFlat(t *testing.T, m *testserver.MariaDB) {
	r := newRocks(t, m)
	s := r.store()
	n := testseed.Steps(800)
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		r.must(s.CreateQueue(t.Context(), string(order), order))
		q := s.Queue(string(order))
		enqueue := func(n int) {
			_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, n)...)
			r.must(err)
		}
		dequeue := func(n int) {
			for range n {
				jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute})
				r.must(err)
				if len(jobs) != 1 {
					t.Fatalf("claimed %d jobs", len(jobs))
				}
				_, err = q.Ack(t.Context(), jobs[0].Lease)
				r.must(err)
			}
		}
		enqueue(2 * n)
		dequeue(n / 10) // the first of a process looks everywhere
		// All of it counts: what was deleted may be walked over once, when a LIFO queue has come to what is below.
		steps, seeks := r.per(9*n+n/2, func() {
			dequeue(n)
			for range 8 {
				enqueue(n)
				dequeue(n)
			}
			dequeue(n / 2)
		})
		t.Logf("%s: %.2f steps and %.1f seeks per dequeue of %d", order, steps, seeks, 9*n+n/2)
		if steps > dequeueSteps || seeks > dequeueSeeks {
			t.Errorf("%s: a dequeue takes %.2f steps and %.1f seeks, at most %d and %d are promised", order, steps, seeks, dequeueSteps, dequeueSeeks)
		}
	}
}

// As much for an outbox that a relay keeps short.
func outboxIsFlat(t *testing.T, m *testserver.MariaDB) {
	r := newRocks(t, m)
	s := r.store()
	src := reader(t, s, "orders")
	const batch = 100
	churn := func(rounds int) {
		for range rounds {
			r.must(s.Publish(t.Context(), "orders", make([]penstock.Message, batch)...))
			for left := batch; left > 0; {
				b := fetch(t, src, batch)
				r.must(src.Settle(context.WithoutCancel(t.Context()), b.Number, driver.Settled{Batch: b}))
				left -= len(b.Messages)
			}
		}
	}
	rounds := testseed.Steps(40)
	churn(8 * rounds)
	steps, seeks := r.per(rounds*batch, func() { churn(rounds) })
	t.Logf("%.2f steps and %.1f seeks per message after %d", steps, seeks, 8*rounds*batch)
	if steps > messageSteps || seeks > messageSeeks {
		t.Errorf("a message takes %.2f steps and %.1f seeks, at most %d and %d are promised", steps, seeks, messageSteps, messageSeeks)
	}
}
