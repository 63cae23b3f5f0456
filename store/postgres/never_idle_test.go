package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
)

// On a queue, an outbox and an inbox there is always work under way: two transactions are open at any time. Jobs fail and come again, have keys and
// dedup keys, and messages are parked. In 25 turns of the queue's ring nothing is larger than promised, or than half of them have made it.
func TestNeverIdleStaysFlat(t *testing.T) {
	t.Parallel()
	testseed.Soak(t)
	l := newRingLoad(newFixture(t, small), "fifo")
	l.Exec("select penstock.create_inbox('billing'), penstock.set_queue('q', keep_done => '1 s', keep_done_bytes => 1048576)")
	l.Exec("update penstock._queue set dedup_window = '1 ms'")
	src := l.subscribe()
	inbox := &inboxFixture{fixture: l.fixture, inbox: l.store.Inbox("billing")}
	const jobs, claimed, open, row, file = 100, 150, 2, 280, 400
	turns := 25 * testseed.Rounds()
	rounds := turns * ringSegments * ringSegmentBytes / (jobs * row)
	bounds := map[string]int64{"_q": ringBound(ringSegments, ringSegmentBytes, ringPayload, (open+2)*claimed, (2*open+1)*claimed)}
	bounds["_q.done"] = 2 << 20                             // keep_done_bytes, and a segment that is being left
	for _, ring := range []string{"_cursor", "_skip_map"} { // which turn once 4 MiB are full
		bounds[ring] = 2 * pairBound(4<<20, 64<<10, 64<<10)
	}
	for _, ring := range []string{"_lease", "_scheduled", "_dedup"} {
		bounds[ring] = pairBound(64<<10, claimed*(open+1)*row, claimed*(2*open+1)*row)*file*2/row + 2*128<<10
	}
	conns := []*pgx.Conn{l.Connect(), l.Connect()}
	early, most := map[string]int64{}, map[string]int64{}
	for round := range rounds {
		conn := conns[round%open]
		if round >= open {
			l.exec(conn, "commit")
		}
		l.exec(conn, "begin")
		l.Exec(`select penstock.enqueue_many('q', array_agg(rpad(i::text, 200)), keys => array_agg(case when i % 2 = 0 then $1 || '-' || i / 4 end), dedup_keys => array_agg($1 || '-' || i))
			from generate_series(1, 100) i`, fmt.Sprint(round))
		l.exec(conn, `with c as materialized (select lease, attempt, row_number() over () as n from penstock.claim('q', 150)),
			r as materialized (select penstock.retry('q', lease, '0 s') from c where attempt < 3 and n % 5 = 0)
			select penstock.ack_many('q', array(select lease from c where not (attempt < 3 and n % 5 = 0))), (select count(*) from r)`)
		l.Exec("insert into penstock.orders (key, payload) select 'k' || i, convert_to(repeat('x', 200), 'UTF8') from generate_series(1, $1::int) i", jobs)
		for b, err := src.Fetch(l.Ctx, plenty); ; b, err = src.Fetch(l.Ctx, plenty) {
			if l.Must(err); len(b.Messages) == 0 {
				break
			}
			verdicts := make([]driver.Verdict, len(b.Messages))
			for i := range verdicts {
				if i%10 == 0 && b.Messages[i].Attempt == 1 {
					verdicts[i] = driver.Verdict{Outcome: driver.Parked, Failures: []penstock.Failure{{Attempt: 1, Err: "no"}}}
				}
			}
			l.Must(storetest.Settle(l.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
		}
		l.Exec("select count(*) from penstock.inbox_many('billing', array(select $1 || '-' || i from generate_series(1, 100) i))", fmt.Sprint(round))
		inbox.receive(arrival("k", fmt.Sprint("held", round), fmt.Sprint("never", round)), 0)
		inbox.due(10)
		if round%5 == 0 {
			inbox.age(l.Conn)
			l.Exec("select setval('penstock.\"_q.maintained\"', 0)")
		}
		l.Exec(strings.Repeat(maintainAtOnce+";", 3), pgx.QueryExecModeSimpleProtocol)
		l.maintain()
		l.Must(l.store.Maintain(l.Ctx, "orders"))
		for _, ring := range []string{"_lease", "_scheduled", "_dedup"} {
			l.reclaimPair(ring)
		}
		l.Exec("select penstock._reclaim_parked(65536), penstock._reclaim_parked_keys(65536), penstock._reclaim_cursor(), penstock._reclaim_pairs()")
		rows, err := l.Conn.Query(l.Ctx, `select case when c.relname ~ '^_(lease|scheduled|dedup|parked|cursor)' then substring(c.relname from '^_[a-z]+')
			when c.relname ~ '^_q[.][0-9]' then '_q' else regexp_replace(c.relname, '[._]?[0-9]+$', '') end, sum(pg_total_relation_size(c.oid))::bigint
			from pg_class c where c.relnamespace = 'penstock'::regnamespace and c.relkind = 'r' and c.relname ~ '[0-9]$' group by 1`)
		l.Must(err)
		var name string
		var size int64
		_, err = pgx.ForEachRow(rows, []any{&name, &size}, func() error {
			if bound := bounds[name]; bound > 0 && size > bound {
				t.Fatalf("after %d rounds %s has %d bytes, at most %d are promised", round+1, name, size, bound)
			}
			if most[name] = max(most[name], size); round < rounds/2 {
				early[name] = most[name]
			}
			return nil
		})
		l.Must(err)
	}
	for name, size := range most {
		t.Logf("%s: %d bytes at most, %d in the first half, %d are promised", name, size, early[name], bounds[name])
		if bounds[name] == 0 && size > early[name]*5/4+64<<10 {
			t.Errorf("%s grew from %d bytes in the first half to %d", name, early[name], size)
		}
	}
	t.Logf("%d rounds", rounds)
}
