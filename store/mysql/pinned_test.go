package mysql_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// pages are those that InnoDB has looked at.
func (r *rocks) pages() (n float64) {
	r.Helper()
	var name string
	r.must(r.db.QueryRow("show global status like 'Innodb_buffer_pool_read_requests'").Scan(&name, &n))
	return n
}

// While a snapshot is open, InnoDB removes no row that is deleted. A job and a message cost the same however many there are. One server alone: its counter is of all that happens in it.
func TestInnoDBPinned(t *testing.T) {
	t.Parallel()
	m := testserver.StartMariaDB(t)
	r := newRocks(t, m)
	s := openStore(t, m.URL, mysql.Options{Engine: "InnoDB", Margin: time.Millisecond, Sweep: time.Hour, LookAgain: time.Hour})
	r.must(s.Migrate(t.Context()))
	pin, err := r.db.Conn(t.Context())
	r.must(err)
	defer pin.Close()
	for _, statement := range []string{"set session transaction isolation level repeatable read", "start transaction with consistent snapshot"} {
		_, err := pin.ExecContext(t.Context(), statement)
		r.must(err)
	}
	const rounds, some, many = 20, 3_000, 12_000
	each := func(do func()) float64 { // the median: the server looks at pages for its own statistics too
		var pages []float64
		for range rounds {
			before := r.pages()
			do()
			pages = append(pages, r.pages()-before)
		}
		slices.Sort(pages)
		return pages[rounds/2]
	}
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		r.must(s.CreateQueue(t.Context(), string(order), order))
		q := s.Queue(string(order))
		enqueue := func(n int) {
			_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, n)...)
			r.must(err)
		}
		dequeue := func(n int) {
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: n, Lease: time.Minute})
			r.must(err)
			leases := make([]int64, len(jobs))
			for i, j := range jobs {
				leases[i] = j.Lease
			}
			if len(jobs) != n {
				t.Fatalf("claimed %d jobs of %d", len(jobs), n)
			}
			_, err = q.Ack(t.Context(), leases...)
			r.must(err)
		}
		enqueue(some + 2*many)
		dequeueMany := func(n int) {
			for range n / 100 {
				dequeue(100)
			}
		}
		dequeueMany(some) // and their leases have made the indexes larger
		first := each(func() { dequeue(1) })
		dequeueMany(many)
		last := each(func() { dequeue(1) })
		t.Logf("%s: %.0f pages a job after %d, %.0f after %d more", order, first, some, last, many)
		if last > 1.3*first {
			t.Errorf("%s: a job takes %.0f pages after %d, and %.0f after %d more", order, first, some, last, many)
		}
	}
	src := reader(t, s, "orders")
	churn := func(n int) {
		r.must(s.Publish(t.Context(), "orders", make([]penstock.Message, n)...))
		for left := n; left > 0; {
			b := fetch(t, src, 1000)
			r.must(src.Settle(context.WithoutCancel(t.Context()), b.Number, driver.Settled{Batch: b}))
			left -= len(b.Messages)
		}
	}
	churnMany := func(n int) {
		for range n / 1000 {
			churn(1000)
		}
	}
	churnMany(some)
	first := each(func() { churn(1) })
	churnMany(many)
	last := each(func() { churn(1) })
	t.Logf("%.0f pages a message after %d, %.0f after %d more", first, some, last, many)
	if last > 1.3*first {
		t.Errorf("a message takes %.0f pages after %d, and %.0f after %d more", first, some, last, many)
	}
}
