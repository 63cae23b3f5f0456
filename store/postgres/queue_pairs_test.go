package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/testseed"
)

// TestPairsStayFlat has five transactions open at any time, each of which has come to the rings that
// queues share: leases, what is delayed, dedup keys. After a hundred rounds they are hardly larger than
// after fifty.
func TestPairsStayFlat(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const (
		jobs     = "select penstock.enqueue_many('q', array_agg(rpad(i::text, 200))) from generate_series(1, 40) i"
		keyed    = "select penstock.enqueue_many('q', array_agg(rpad(i::text, 200)), array_agg('k' || i)) from generate_series(1, 40) i"
		claimAck = "select from penstock.ack_many('q', array(select lease from penstock.claim('q', 40)))"
		worn     = "select from penstock.claim('other', 40)" // what makes the ring turn
		ended    = "select from penstock.ack_many('other', array(select lease from penstock._lease where queue = (select id from penstock._queue where name = 'other')))"
		others   = "select penstock.enqueue_many('other', array_agg(rpad(i::text, 200))) from generate_series(1, 40) i"
	)
	for name, load := range map[string]struct {
		ring   string
		before []string // each round, on its own
		open   string   // and this in a transaction that goes on
	}{
		"acks":           {"_lease", []string{jobs}, claimAck},
		"keyed dequeues": {"_lease", []string{others, worn, ended, keyed}, "select from penstock.dequeue('q', 40)"},
		"extended leases": {"_lease", []string{others, worn, ended},
			"select from penstock.extend_many('q', array[1, 2, 3], '1 min')"}, // nobody's
		"retries": {"_scheduled", []string{jobs}, "select penstock.retry('q', lease, '1 day') from penstock.claim('q', 40)"},
		"dedup keys": {"_dedup", nil,
			"select penstock.enqueue_many('q', array_agg(''::text), dedup_keys => array_agg(rpad(i || ' %[1]d', 200))) from generate_series(1, 40) i"},
	} {
		for _, pinned := range []bool{false, true} {
			if !pinned && !testseed.Draw(t.Name()+name, 5) {
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
				for range 5 {
					conns = append(conns, f.Connect())
				}
				var early, size int64
				var turns int
				rounds := max(50, testseed.Steps(100))
				for round := range rounds {
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
					for range 2 {
						f.Exec("update penstock._pair set again = null")
						var turned bool
						f.Must(f.Conn.QueryRow(f.Ctx, "select penstock._reclaim_pair($1, 65536, case $1 when '_dedup' then $2 else 'true' end)", load.ring,
							"r.at > clock_timestamp() - (select q.dedup_window from penstock._queue q where q.id = r.queue)").Scan(&turned))
						if turned {
							turns++
						}
					}
					size = f.Number("select (pg_total_relation_size($1) + pg_total_relation_size($2))::bigint", "penstock."+load.ring+"_0", "penstock."+load.ring+"_1")
					if round < rounds/2 {
						early = max(early, size)
					} else if float64(size) > 1.2*float64(early) {
						t.Fatalf("after %d rounds and %d turns the ring has %d bytes, at most %d in the first %d", round+1, turns, size, early, rounds/2)
					}
				}
				if turns < 3 {
					t.Errorf("the ring has turned %d times", turns)
				}
				t.Logf("%d turns, %d bytes at first, %d at last", turns, early, size)
			})
		}
	}
}
