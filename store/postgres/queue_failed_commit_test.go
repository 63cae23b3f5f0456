package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// Maintenance is part of a worker's transaction, which may yet fail: its rows come back then, and
// the registers, which are sequences, stay where it has set them.

func TestKeyIsHeldWhereTheTurnOfAPairFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('q')")
	f.Exec("select penstock.enqueue('q', 'one', key => 'k'), penstock.enqueue('q', 'two', key => 'k')")
	var lease int64
	f.Must(f.Conn.QueryRow(f.Ctx, "select lease from penstock.claim('q', 1, '1 hour')").Scan(&lease))
	for range 4 {
		f.Exec("select penstock._reclaim_pair('_lease', 1, 'true')")
		f.Exec("begin")
		f.Exec("select penstock.ack('q', $1)", lease)
		f.Exec("select penstock._reclaim_pair('_lease', 1, 'true')")
		f.Exec("rollback")
		if n := f.Number("select count(*) from penstock.claim('q', 1, '1 hour')"); n != 0 {
			t.Fatal("the second job of a key is leased beside the first")
		}
	}
	f.Exec("select penstock.ack('q', $1)", lease)
	if n := f.Number("select count(*) from penstock.claim('q', 1, '1 hour')"); n != 1 {
		t.Fatal("the second job of the key is not leased after the first")
	}
}

func TestOrderWhereTheTurnOfTheRingFails(t *testing.T) {
	t.Parallel()
	r := testseed.New("failed turns", 0)
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for _, segments := range []int{2, 4} {
		t.Run(fmt.Sprint(segments), func(t *testing.T) {
			f := newFixture(t, postgres.Options{})
			f.Exec("select penstock.create_queue('q', 'fifo', $1, 65536)", segments)
			walkWhileTurnsFail(t, f, r)
		})
	}
}

func walkWhileTurnsFail(t *testing.T, f *fixture, r *rand.Rand) {
	var enqueued int
	last := map[string]int{} // the job of a key that was taken last
	taken := 0
	take := func(n int, commit bool) int {
		f.Exec("begin")
		rows, _ := f.Conn.Query(f.Ctx, "select key || ' ' || split_part(convert_from(payload, 'UTF8'), ' ', 1) from penstock.dequeue('q', $1)", n)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		f.Must(err)
		f.Exec("update penstock._segment set again = null, retired = retired - interval '1 min' where again is not null or retired is not null")
		f.Exec("select penstock._maintain_ring('q')")
		if !commit {
			f.Exec("rollback")
			return len(got)
		}
		f.Exec("commit")
		for _, job := range got {
			var key string
			var n int
			_, err = fmt.Sscan(job, &key, &n)
			f.Must(err)
			if n <= last[key] {
				t.Fatalf("of key %s, job %d came after %d", key, n, last[key])
			}
			last[key] = n
			taken++
		}
		return len(got)
	}
	for range testseed.Steps(150) {
		for range r.IntN(30) {
			enqueued++
			f.Exec("select penstock.enqueue('q', $1, key => $2)", fmt.Sprint(enqueued, " ", strings.Repeat("x", 1000)), fmt.Sprint(r.IntN(5)))
		}
		take(1+r.IntN(40), r.IntN(2) == 0)
	}
	for take(100, true) > 0 {
	}
	if taken != enqueued {
		t.Errorf("%d of %d jobs were taken", taken, enqueued)
	}
}
