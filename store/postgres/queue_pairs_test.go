package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
)

// pairBound is how large docs/reference/limits.md says that the files of one of these rings get.
func pairBound(full, waiting, inflow int) int64 {
	copies := 2
	if waiting > 8<<20 {
		copies = 6
	}
	return int64(2*(full+inflow) + copies*waiting)
}

// TestPairsStayFlat has two transactions open at any time, each of which has come to the rings that
// queues share: leases, what is delayed, dedup keys. However much goes through, they stay within their bound.
func TestPairsStayFlat(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const (
		open, rows, full = 2, 100, 64 << 10

		jobs     = "select penstock.enqueue_many('q', array_agg(rpad(i::text, 200))) from generate_series(1, 100) i"
		keyed    = "select penstock.enqueue_many('q', array_agg(rpad(i::text, 200)), array_agg('k' || i)) from generate_series(1, 100) i"
		claimAck = "select from penstock.ack_many('q', array(select lease from penstock.claim('q', 100)))"
		worn     = "select from penstock.claim('other', 100)" // what makes the ring turn
		ended    = "select from penstock.ack_many('other', array(select lease from penstock._lease where queue = (select id from penstock._queue where name = 'other')))"
		others   = "select penstock.enqueue_many('other', array_agg(rpad(i::text, 200))) from generate_series(1, 100) i"
	)
	for name, load := range map[string]struct {
		ring   string
		table  int      // bytes of a row, at least
		files  int      // and with its entries in indexes, at most
		before []string // each round, on its own
		open   string   // and this in a transaction that continues
	}{
		"acks":           {"_lease", 280, 400, []string{jobs}, claimAck},
		"keyed dequeues": {"_lease", 280, 400, []string{others, worn, ended, keyed}, "select from penstock.dequeue('q', 100)"},
		"extended leases": {"_lease", 280, 400, []string{others, worn, ended},
			"select from penstock.extend_many('q', array[1, 2, 3], '1 min')"}, // no worker's
		"retries": {"_scheduled", 280, 400, []string{jobs}, "select penstock.retry('q', lease, '1 day') from penstock.claim('q', 100)"},
		"dedup keys": {"_dedup", 240, 800, nil, // the key is also in an index, whose pages may be half empty
			"select penstock.enqueue_many('q', array_agg(''::text), dedup_keys => array_agg(rpad(i || ' %[1]d', 200))) from generate_series(1, 100) i"},
	} {
		for _, pinned := range []bool{false, true} {
			if !pinned && !testseed.Long() {
				continue // pinned is harder
			}
			t.Run(fmt.Sprintf("%s/pinned=%t", name, pinned), func(t *testing.T) {
				t.Parallel()
				f := newJobs(t, "fifo")
				f.Exec("select penstock.create_queue('other', 'fifo', 4, 65536)")
				f.Exec("update penstock._queue set dedup_window = '1 ms'")
				if pinned {
					f.pin()
				}
				var conns []*pgx.Conn
				for range open {
					conns = append(conns, f.Connect())
				}
				// Rows of open transactions stay. Until these have ended a segment is in use, and until those have ended that came
				// meanwhile it has locks. Segments of full bytes have that number of rows.
				bound := pairBound(full, rows*(open+1)*load.table, rows*(2*open+1)*load.table)*int64(load.files)/int64(load.table) + 2*128<<10
				var most int64
				for round := 0; int64(round*rows*load.table) < bound*int64(testseed.Rounds()); round++ {
					for _, sql := range load.before {
						f.Exec(sql)
					}
					conn := conns[round%len(conns)]
					if round >= len(conns) {
						f.exec(conn, "commit")
					}
					f.exec(conn, "begin")
					sql := load.open
					if load.before == nil {
						sql = fmt.Sprintf(sql, round)
					}
					f.exec(conn, sql)
					if load.ring == "_scheduled" { // those that are committed are done with
						f.Exec("delete from penstock._scheduled")
					}
					f.reclaimPair(load.ring)
					size := f.pairSize(load.ring)
					most = max(most, size)
					if size > bound {
						t.Fatalf("after %d rounds the ring has %d bytes, at most %d are promised", round+1, size, bound)
					}
				}
				t.Logf("%d bytes at most, %d are promised", most, bound)
			})
		}
	}
}

// reclaimPair is as much maintenance of a ring as a turn takes.
func (f *fixture) reclaimPair(ring string) {
	f.Helper()
	for range 5 { // the register moves, the remaining rows move, the segment retires, leaves the list, is truncated
		f.Exec("update penstock._pair set again = null")
		f.Exec("select penstock._reclaim_pair($1, 65536, case $1 when '_dedup' then $2 else 'true' end)", ring,
			"r.at > clock_timestamp() - (select q.dedup_window from penstock._queue q where q.id = r.queue)")
	}
}

func (f *fixture) pairSize(ring string) int64 {
	f.Helper()
	return f.Number("select (pg_total_relation_size($1) + pg_total_relation_size($2))::bigint", "penstock."+ring+"_0", "penstock."+ring+"_1")
}

// More stays in a ring than is carried over at once, and much goes through it: it takes a multiple of what stays, not of what went.
func TestPairWithMuchThatStays(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	const stay, payload = 9, 1 << 20
	f.Exec("create temp table wide as select decode(string_agg(md5(i::text), ''), 'hex') as payload from generate_series(1, $1::int / 16) i", payload)
	add := func(n int, due string) {
		f.Exec(`insert into penstock._scheduled (id, queue, attempt, due, created_at, priority, group_key, payload)
			select n, q.id, 0, now() + $2::interval, now(), 0, '', payload from penstock._queue q, wide, generate_series(1, $1::int) n where q.name = 'q'`, n, due)
	}
	add(stay, "1 day")
	bound := pairBound(64<<10, stay*(payload+200), 3*(payload+200))*103/100 + 2*128<<10 // 3% are TOAST's
	var most int64
	for through := int64(0); through < 2*bound; through += 3 * payload {
		add(3, "2 days")
		f.Exec("delete from penstock._scheduled where due > now() + interval '40 hours'")
		f.reclaimPair("_scheduled")
		size := f.pairSize("_scheduled")
		if most = max(most, size); size > bound {
			t.Fatalf("the ring has %d bytes after %d have gone through, at most %d are promised", size, through, bound)
		}
	}
	t.Logf("%d bytes at most, %d are promised", most, bound)
	if n := f.Number("select count(*) from penstock._scheduled where payload = (select payload from wide)"); n != stay {
		t.Errorf("%d have stayed, want %d", n, stay)
	}
}
