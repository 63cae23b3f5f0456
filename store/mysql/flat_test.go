package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/testseed"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// rocks is a server of its own, whose counters nobody else moves.
type rocks struct {
	*testing.T
	url string
	db  *sql.DB
}

func newRocks(t *testing.T) *rocks {
	m, err := testserver.NewMariaDB()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	r := &rocks{T: t, url: m.URL}
	r.db = application(t, m.URL)
	r.exec("create database penstock")
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

// counters are RocksDB's next and seek calls so far.
func (r *rocks) counters() (next, seek float64) {
	r.Helper()
	rows, err := r.db.Query("show global status where variable_name in ('rocksdb_number_db_next', 'rocksdb_number_db_seek')")
	r.must(err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var n float64
		r.must(rows.Scan(&name, &n))
		if name == "Rocksdb_number_db_next" || name == "rocksdb_number_db_next" {
			next = n
		} else {
			seek = n
		}
	}
	return next, seek
}

// per says what each of n costs, done by fn.
func (r *rocks) per(n int, fn func()) (next, seek float64) {
	before, seeks := r.counters()
	fn()
	next, seek = r.counters()
	return (next - before) / float64(n), (seek - seeks) / float64(n)
}

func (r *rocks) store() *mysql.Store {
	// Nothing commits late here, and what time decides is left out: looking again for it.
	s := openStore(r.T, r.url, mysql.Options{Engine: "RocksDB", Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
	r.must(s.Migrate(r.Context()))
	return s
}

// A dequeue takes as few of RocksDB's next calls after ten times as many jobs as at first, however many are deleted.
func TestQueueIsFlatOnMyRocks(t *testing.T) {
	t.Parallel()
	r := newRocks(t)
	s := r.store()
	n := testseed.Steps(2000)
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		r.must(s.CreateQueue(t.Context(), string(order), order))
		q := s.Queue(string(order))
		enqueue := func(n int) {
			_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, n)...)
			r.must(err)
		}
		dequeue := func(n int) {
			for range n {
				jobs, err := q.Claim(t.Context(), penstock.Claim{Jobs: 1, Lease: time.Hour})
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
		first, seeks := r.per(n, func() { dequeue(n) })
		for range 8 {
			enqueue(n)
			dequeue(n)
		}
		last, seeksLast := r.per(n/2, func() { dequeue(n / 2) })
		t.Logf("%s: %.2f next and %.1f seek per dequeue at first, %.2f and %.1f after %d", order, first, seeks, last, seeksLast, 10*n)
		if last > 1.3*first+0.1 || last > 10 || seeksLast > 1.3*seeks {
			t.Errorf("%s: a dequeue takes %.2f next and %.1f seek, %.2f and %.1f at first", order, last, seeksLast, first, seeks)
		}
	}
}

// As much for an outbox that a relay keeps short.
func TestOutboxIsFlatOnMyRocks(t *testing.T) {
	t.Parallel()
	r := newRocks(t)
	s := r.store()
	src := reader(t, s, "orders")
	const batch = 100
	churn := func(rounds int) {
		for range rounds {
			r.must(s.Publish(t.Context(), "orders", make([]penstock.Message, batch)...))
			for left := batch; left > 0; {
				b := fetch(t, src, batch)
				r.must(src.Settle(context.WithoutCancel(t.Context()), penstock.Settled{Batch: b}))
				left -= len(b.Messages)
			}
		}
	}
	rounds := testseed.Steps(40)
	churn(2)
	first, seeks := r.per(rounds*batch, func() { churn(rounds) })
	churn(8 * rounds)
	last, seeksLast := r.per(rounds*batch, func() { churn(rounds) })
	t.Logf("%.2f next and %.1f seek per message at first, %.2f and %.1f after %d", first, seeks, last, seeksLast, 10*rounds*batch)
	if last > 1.3*first+0.1 || last > 10 || seeksLast > 1.3*seeks {
		t.Errorf("a message takes %.2f next and %.1f seek, %.2f and %.1f at first", last, seeksLast, first, seeks)
	}
}
