package postgres_test

import (
	"net/url"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// runningLeases are those of the queue "q".
const runningLeases = `select j.lease from penstock._queue q join penstock._lease l on l.queue = q.id cross join lateral (select l.lease where l.jobs is null
	union all select j.lease from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j where q.name = 'q'`

// manyHeld are leases of a barrier's jobs: two rows of several jobs, and the one that is watched. 29 others run as well.
type manyHeld struct {
	barrier, watched int64
	row, another     []int64
}

// holdMany claims all jobs of a barrier that watches one of them, which the register says.
func (f *fixture) holdMany() (h manyHeld) {
	f.Helper()
	h.barrier = f.heldBy(slices.Repeat([]string{"x"}, 120)...)
	f.mustAckClaim(f.Conn, f.mustAckClaim(f.Conn, nil, 20), 1)
	h.row, h.another = f.mustAckClaim(f.Conn, nil, 40), f.mustAckClaim(f.Conn, nil, 30)
	others, last := f.mustAckClaim(f.Conn, nil, 28), f.claim(5)
	if len(h.row) != 40 || len(h.another) != 30 || len(others) != 28 || len(last) != 1 {
		f.Fatalf("claimed %d, %d, %d and %d jobs", len(h.row), len(h.another), len(others), len(last))
	}
	h.watched = last[0].lease
	f.wantRegister(h.barrier)
	f.wantRunning(h.barrier, watchedOne+100)
	return h
}

// wantOpens ends the jobs that run, first all but ten, then one by one. The job that waits runs after the last, once.
func (f *fixture) wantOpens(h manyHeld, left int) {
	f.Helper()
	var leases []int64
	f.Must(f.Conn.QueryRow(f.Ctx, "select array("+runningLeases+")").Scan(&leases))
	if len(leases) != left {
		f.Fatalf("%d jobs run, want %d", len(leases), left)
	}
	slices.Sort(leases)
	f.Exec("select penstock.ack_many('q', $1)", leases[10:])
	for _, lease := range leases[:10] {
		f.wantClaim(5)
		f.Exec("select penstock.ack('q', $1)", lease)
	}
	f.wantRunning(h.barrier, 0)
	done := f.claim(5)
	if len(done) != 1 {
		f.Fatalf("%d jobs run after the last end, want the one that waits", len(done))
	}
	f.Exec("select penstock.ack('q', $1)", done[0].lease)
	f.wantClaim(5)
}

// The server is killed while a barrier watches one of its jobs, around the end of that job and around ends that write no note. Ends count that have committed,
// and prepared ones when they commit.
func TestWatchedJobSurvivesCrashes(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "fsync = on")
	f := fixtureOn(t, server.URL, postgres.Options{Segments: 4, SegmentBytes: 65536})
	f.Must(f.store.CreateQueue(f.Ctx, "q", penstock.FIFO))
	f.watchFrom(40)
	crash := func() {
		t.Helper()
		f.Must(server.Kill())
		f.Must(server.Start())
		f.Conn = f.Connect()
	}
	ackWatched := func(on *pgx.Conn, h manyHeld) {
		t.Helper()
		_, err := on.Exec(f.Ctx, "select penstock.ack('q', $1)", h.watched)
		f.Must(err)
	}
	for _, moment := range []string{"rows end and commit", "a row ends and does not commit", "the watched job ends and commits", "the watched job ends, is counted and does not commit",
		"a row's end is prepared and commits", "a row's end is prepared and rolls back", "the watched job's end is prepared and commits", "the watched job's end is prepared and rolls back"} {
		t.Log(moment)
		h, one, left := f.holdMany(), f.Connect(), 100
		switch moment {
		case "rows end and commit":
			f.mustAckClaim(one, h.row, 1)
			f.mustAckClaim(one, h.another, 1)
			crash()
			f.wantRunning(h.barrier, watchedOne+100) // no note
			left = 30
		case "a row ends and does not commit":
			f.run0(one, "begin")
			f.mustAckClaim(one, h.row, 1)
			crash()
		case "the watched job ends and commits":
			f.mustAckClaim(one, h.row, 1)
			ackWatched(one, h)
			crash()
			left = 59
			f.wantRunning(h.barrier, 59) // all run, so no other is watched
		case "the watched job ends, is counted and does not commit":
			f.mustAckClaim(one, h.row, 1)
			f.run0(one, "begin")
			ackWatched(one, h)
			f.run0(one, "set constraints all immediate")
			crash()
			left = 60
		case "a row's end is prepared and commits", "a row's end is prepared and rolls back":
			f.run0(one, "begin")
			f.mustAckClaim(one, h.row, 1)
			f.run0(one, "prepare transaction 'ends'")
			crash()
			two := f.Connect()
			ended := make(chan error, 1)
			go func() { _, err := two.Exec(f.Ctx, "select penstock.ack('q', $1)", h.watched); ended <- err }()
			f.Eventually("the end of the job that is watched waits for it", func() bool {
				return f.Number("select count(*) from pg_locks where locktype = 'advisory' and not granted") == 1
			})
			if moment == "a row's end is prepared and commits" {
				f.Exec("commit prepared 'ends'")
				left = 59
			} else {
				f.Exec("rollback prepared 'ends'")
				left = 99
			}
			f.Must(<-ended)
		default:
			f.mustAckClaim(one, h.row, 1)
			f.run0(one, "begin")
			ackWatched(one, h)
			f.run0(one, "prepare transaction 'ends'")
			crash()
			if moment == "the watched job's end is prepared and commits" {
				f.Exec("commit prepared 'ends'")
				left = 59
			} else {
				f.Exec("rollback prepared 'ends'")
				left = 60
			}
		}
		f.wantOpens(h, left)
	}
}

// A standby is promoted without the last commits, while a barrier watches a job, another waits for a prepared end, and groups are full, held and over their rate.
// On the new primary leases from before the loss can be ended. Each waiting job runs after the last end, once. No group has more leases
// and starts than it may.
func TestPromotionKeepsBarriersAndLimits(t *testing.T) {
	t.Parallel()
	primary := testserver.StartPostgres(t, "wal_keep_size = 64MB")
	u, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	way := tcpproxy.New(t, u.Host)
	f := fixtureOn(t, primary.URL, postgres.Options{Segments: 4, SegmentBytes: 65536})
	f.Exec("select penstock.create_queue('q'), penstock.create_queue('limited')")
	f.watchFrom(40)
	standby, err := primary.NewAsyncStandby(way.Addr())
	f.Must(err)
	t.Cleanup(func() { _ = standby.Close() })

	started := func(group string, n int) (leases []int64) {
		t.Helper()
		f.Must(f.Conn.QueryRow(f.Ctx, "select array(select lease from penstock.claim('limited', $1, '1 h', $2, 'w'))", n, group).Scan(&leases))
		return leases
	}
	wantStarted := func(group string, want int) (leases []int64) {
		t.Helper()
		if leases = started(group, 10); len(leases) != want {
			t.Fatalf("%d jobs of the group %q start, want %d", len(leases), group, want)
		}
		return leases
	}
	f.Exec("select penstock.enqueue_many('limited', array_fill('x'::text, array[60]), group_keys => array(select ('{full,rated,held}'::text[])[1 + i % 3] from generate_series(1, 60) i))")
	f.Exec("select penstock.set_group('limited', 'full', max_running => 3), penstock.set_group('limited', 'rated', rate => 1, per => '1 day', burst => 4), penstock.hold_group('limited', 'held', '1 day')")
	full := append(started("full", 1), started("full", 1)...)
	started("rated", 1)
	few := f.Number("select penstock.barrier('limited')")
	f.Exec("select penstock.enqueue_many('limited', '{x,x,x}'::text[], holds => $1)", few)
	f.Exec("select penstock.enqueue('limited', 'after few', waits_for => array[$1::bigint], group_key => 'after'), penstock.seal('limited', $1)", few)
	ofFew := started("", 3)
	prepares := f.Connect()
	f.run0(prepares, "begin")
	_, err = prepares.Exec(f.Ctx, "select penstock.ack('limited', $1)", ofFew[2])
	f.Must(err)
	f.run0(prepares, "prepare transaction 'ends'")
	many := f.holdMany()

	f.Must(primary.AwaitAsyncStandby())
	way.Refuse() // from here on all is lost
	lost := append(wantStarted("full", 1), started("rated", 2)...)
	f.Exec("select penstock.hold_group('limited', 'held', '0')")
	lost = append(lost, started("held", 5)...)
	f.Exec("commit prepared 'ends'")
	f.Exec("select penstock.ack_many('limited', $1)", append(ofFew[:2:2], full[0]))
	wantStarted("after", 1)
	f.mustAckClaim(f.Conn, many.row, 1)
	f.Exec("select penstock.ack('q', $1)", many.watched)
	f.Exec("select penstock.ack_many('q', array(" + runningLeases + "))")
	if done := f.claim(5); len(done) != 1 {
		t.Fatalf("%d jobs run after the last end", len(done))
	}
	f.Must(primary.Kill())
	f.Must(standby.Promote())
	f.URL = standby.URL
	f.Conn = f.Connect()

	var ended []int64
	f.Must(f.Conn.QueryRow(f.Ctx, "select array(select penstock.ack_many('limited', $1))", lost).Scan(&ended))
	if len(ended) > 0 {
		t.Errorf("%d leases are held that the primary gave away", len(ended))
	}
	wantStarted("full", 1)
	wantStarted("rated", 3)
	wantStarted("held", 0)
	f.Exec("select penstock.ack('limited', lease) from unnest($1::bigint[]) lease", full)
	wantStarted("full", 2)
	wantStarted("full", 0)
	f.Exec("commit prepared 'ends'")
	f.Exec("select penstock.ack('limited', $1)", ofFew[0])
	wantStarted("after", 0)
	f.Exec("select penstock.ack('limited', $1)", ofFew[1])
	wantStarted("after", 1)
	wantStarted("after", 0)

	f.wantRunning(many.barrier, watchedOne+100)
	if held := f.mustAckClaim(f.Conn, many.row, 1); len(held) > 0 {
		t.Errorf("%d jobs are ready that held the barrier", len(held))
	}
	f.wantRegister(many.barrier)
	f.wantOpens(many, 60)
}
