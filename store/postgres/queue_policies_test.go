package postgres_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// A group that admits nothing is in no other's way: whatever it holds, a search for groups and a claim of another group read as much.
func TestFullGroupCostsNothing(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_group('q', 'full', max_running => 1), penstock.set_group('q', 'rated', rate => 1, per => '1 day'), penstock.hold_group('q', 'held', '1 day')")
	add := func(n int) {
		f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[3 * $1::int]), group_keys => array(select g from generate_series(1, $1::int), unnest('{full,rated,held}'::text[]) g))", n)
	}
	add(3)
	for _, group := range []string{"full", "rated"} {
		if got := f.claimOn(f.Conn, 2, group); len(got) != 1 {
			t.Fatalf("%d jobs of the group %s run", len(got), group)
		}
	}
	measure := func() (reads [2]int64) {
		f.Exec("select penstock.enqueue('q', 'x', group_key => 'other')")
		f.wantText("other", "select string_agg(g, ' ') from penstock.ready_groups('q') g")
		f.Exec(`select setval('penstock."_q.maintained"', (extract(epoch from clock_timestamp()) * 1000 + 100)::bigint)`) // none meanwhile
		reads[0] = f.reads("select penstock.ready_groups('q')")
		reads[1] = f.reads("select penstock.ack_many('q', array(select lease from penstock.claim('q', 1, group_key => 'other')))")
		return reads
	}
	few := measure()
	add(testseed.Steps(3000))
	many := measure()
	for i, what := range []string{"a search", "a claim"} {
		if many[i] > few[i]+20 {
			t.Errorf("%s read %d entries with few jobs in groups that admit none, and %d with many", what, few[i], many[i])
		}
	}
}

// While a snapshot keeps every dead row, a claim of a group with limit and rate reads as much after hundreds of others, and after as many holds.
func TestAdmissionStaysFlat(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	each := testseed.Steps(100)
	f.Exec("select penstock.set_group('q', 'a', max_running => 3, rate => 1000000, per => '1 s', burst => 1000000), penstock.set_group('q', 'b', max_running => 3), penstock.set_group('q', 'c', rate => 1000000, per => '1 s', burst => 1000000)")
	for _, group := range []string{"a", "b", "c"} {
		f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[$1::int]), group_keys => array_fill($2::text, array[$1::int]))", 4000, group)
		stays := f.claimOn(f.Conn, 1, group)[0] // one that is busy for long
		round := func() int64 {
			var reads int64
			for range each {
				tx := f.begin(f.Conn)
				reads += f.readsIn(tx, "select penstock._admit(q.id, $1, 1, null), penstock._group_open(q.id, $1) from penstock._queue q where q.name = 'q'", group)
				f.Must(tx.Rollback(f.Ctx))
				f.Exec("select penstock.hold_group('q', $1, '1 h'), penstock.hold_group('q', $1, '0')", group)
				f.Exec("select penstock.ack_many('q', array(select lease from penstock.claim('q', 1, group_key => $1)))", group)
			}
			return reads / int64(each)
		}
		first := round()
		var last int64
		for range 10 {
			last = round()
		}
		t.Logf("%s: %d, then %d entries", group, first, last)
		if last > first+first/10+5 {
			t.Errorf("an admission to the group %s read %d entries at first, and %d after many others", group, first, last)
		}
		f.wantText(fmt.Sprint(stays.lease), "select string_agg(lease::text, ' ') from penstock._lease where group_key = $1", group)
	}
}

// So does one claim of several groups, which also ends jobs of each.
func TestClaimsOfSeveralGroupsStayFlat(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	groups := strings.Split("abcdefgh", "")
	f.Exec("select penstock.set_group('q', '*', max_running => 1), penstock.set_group('q', 'a', rate => 1000000, per => '1 s', burst => 1000000)")
	const rounds, each = 11, 25
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[$1::int]), group_keys => array(select ($2::text[])[1 + i % cardinality($2)] from generate_series(1, $1::int) i))",
		(rounds*each+1)*len(groups), groups)
	q := f.store.Queue("q")
	claim := driver.Claim{Jobs: 1, Lease: time.Hour}
	_, jobs, err := q.AckClaimGroups(f.Ctx, nil, groups, claim)
	f.Must(err)
	round := func() int64 {
		f.maintain() // as workers do, twice a second
		var reads int64
		for range each {
			held := make([]int64, len(jobs))
			for i, j := range jobs {
				held[i] = j.Lease
			}
			tx := f.begin(f.Conn)
			reads += f.readsIn(tx, postgres.ClaimGroups(q), slices.Repeat([]int{1}, len(groups)), claim.Lease, groups, "", held)
			f.Must(tx.Rollback(f.Ctx))
			_, jobs, err = q.AckClaimGroups(f.Ctx, held, groups, claim)
			if f.Must(err); len(jobs) != len(groups) {
				t.Fatalf("%d jobs of %d groups", len(jobs), len(groups))
			}
		}
		return reads / each
	}
	first := round()
	var last int64
	for range rounds - 1 {
		last = round()
	}
	t.Logf("%d, then %d entries", first, last)
	if last > first+first/5+10 {
		t.Errorf("a claim of %d groups read %d entries at first, and %d after %d others", len(groups), first, last, (rounds-1)*each)
	}
}

// With many groups of which each may run one job, workers find others at once. A search and a claim read as much at the end as at the beginning, and
// of a large backlog as much as of a small one.
func TestClaimsOfManyGroups(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "autovacuum = off") // while it looks at a table, dead entries of leases stay, and each claim reads them
	f := fixtureOn(t, testserver.Database(t, server.URL), postgres.Options{Segments: 4, SegmentBytes: 65536})
	f.Exec("select penstock.create_queue('q'), penstock.keep_samples('0')")
	groups, deep, rounds := 200, 5, 20
	if testseed.Long() {
		groups, deep, rounds = 10_000, 100, 700 // each group has a second turn
	}
	f.Exec("select penstock.set_group('q', '*', max_running => 1)")
	quiet := func() { // no maintenance meanwhile
		f.Exec(`select setval('penstock."_q.maintained"', (extract(epoch from clock_timestamp()) * 1000 + 100000)::bigint)`)
	}
	for range deep {
		quiet()
		f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[$1::int]), group_keys => array(select 'group ' || i from generate_series(1, $1::int) i))", groups)
	}
	f.Exec("create table held (n bigserial primary key, lease bigint)")
	last := ""
	var reads []int64
	for round := range rounds {
		quiet()
		sum := f.reads("select penstock.ready_groups('q', null, $1, 16)", last)
		rows, err := f.Conn.Query(f.Ctx, "select g from penstock.ready_groups('q', null, $1, 16) g", last)
		f.Must(err)
		ready, err := pgx.CollectRows(rows, pgx.RowTo[string])
		f.Must(err)
		if len(ready) != 16 {
			t.Fatalf("round %d: the search found %q", round, ready)
		}
		for _, group := range ready {
			sum += f.reads("insert into held (lease) select lease from penstock.claim('q', 5, group_key => $1)", group)
		}
		if n := f.Number("select count(*) from held"); n != int64(16*min(round+1, 3)) {
			t.Fatalf("round %d: %d jobs run", round, n)
		}
		if round >= 2 { // others run on meanwhile
			f.Exec("with d as (delete from held where n <= (select min(n) + 15 from held) returning lease) select penstock.ack_many('q', array_agg(lease)) from d")
		}
		last = ready[15]
		reads = append(reads, sum)
	}
	t.Logf("%d to %d entries", slices.Min(reads), slices.Max(reads))
	if most := slices.Max(reads); most > 500 {
		t.Errorf("with %d jobs in %d groups, a search and 16 claims read up to %d entries, want 500 at most", groups*deep, groups, most)
	}
}

// A claim that began before the first limit of a group was set, and commits afterwards, is counted soon.
func TestLeasesFromBeforeALimit(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[30]), group_keys => array_fill('a'::text, array[30]))")
	tx := f.begin(f.Connect())
	if got := f.claimOn(tx, 2, "a"); len(got) != 2 {
		t.Fatal("no jobs")
	}
	f.Exec("select count(*) from penstock.ack_claim('q', '{}', 10, group_key => 'a')") // in one row
	f.Exec("select penstock.set_group('q', 'a', max_running => 13)")
	f.Must(tx.Commit(f.Ctx))
	f.Exec(`select setval('penstock."_q.maintained"', 0)`)
	f.maintain()
	f.Eventually("all are counted", func() bool {
		f.maintain()
		return f.Number("select count(*) from penstock._lease where listed is not true") == 0
	})
	if got := f.claimOn(f.Conn, 5, "a"); len(got) != 1 {
		t.Errorf("12 ran of 13 that may, and %d were claimed", len(got))
	}
	f.Exec("select penstock.set_group('q', 'a'), penstock.ack_many('q', array(select lease from penstock._lease where jobs is null))")
	f.Exec("select penstock.ack_many('q', array(select j.lease from penstock._lease, unnest(jobs) j))")
	f.Eventually("the flag is lowered, and what was noted is forgotten", func() bool {
		f.maintain()
		return f.Number("select watched::int from penstock.queue_internals") == 0 && f.Number("select count(*) from penstock._group_state") == 0
	})
}

// A clock that was far ahead has noted starts in what is the future now. They hold a group or the queue up for one interval, not until then.
func TestRateAfterAClockWasSetBack(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_group('q', 'a', rate => 10, per => '1 s', burst => 5), penstock.enqueue('q', 'x', group_key => 'a')")
	f.Exec("insert into penstock._group_state (queue, group_key, next_at) select id, 'a', now() + interval '1 year' from penstock._queue")
	f.Eventually("a job starts", func() bool { return len(f.claimOn(f.Conn, 1, "a")) == 1 })
	f.wantText("true", "select (next_at < now() + interval '1 minute')::text from penstock._group_state order by n desc limit 1")
	f.Exec("select penstock.set_group('q', 'a'), penstock.set_queue('q', rate => 10, per => '1 s', burst => 5), penstock.enqueue('q', 'x', group_key => 'a')")
	f.Exec("insert into penstock._group_state (queue, group_key, next_at) select -id, '', now() + interval '1 year' from penstock._queue")
	f.Eventually("a job of the queue starts", func() bool { return len(f.claimOn(f.Conn, 1, "a")) == 1 })
	f.wantText("true", "select (next_at < now() + interval '1 minute')::text from penstock._group_state where queue < 0 order by n desc limit 1")
}

// A month, and a day in a time zone, are of different lengths. Each counts as thirty days and as 24 hours, and a rate is kept to.
func TestRateByTheCalendar(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_queue('q', rate => 1, per => '11 months'), penstock.set_group('q', 'a', rate => 1, per => '11 months')")
	f.Exec("select penstock.enqueue_many('q', '{x,x,x,x}', group_keys => '{a,a,b,b}')")
	if got := f.claimOn(f.Conn, 2, "a"); len(got) != 1 {
		t.Errorf("%d jobs of the group have started, want 1", len(got))
	}
	if got := append(f.claimOn(f.Conn, 2, "a"), f.claimOn(f.Conn, 2, "b")...); len(got) > 0 {
		t.Errorf("%d jobs more have started", len(got))
	}
	f.Exec("select penstock.set_queue('q', rate => 0)")
	if got := f.claimOn(f.Conn, 2, "a"); len(got) > 0 {
		t.Errorf("%d jobs of the group have started besides", len(got))
	}
	f.Exec("select penstock.set_group('q', 'a', rate => 1, per => '366 days', burst => 1000000), penstock.enqueue_many('q', '{x,x}', group_keys => '{a,a}')")
	f.Exec("insert into penstock._group_state (queue, group_key) select id, 'a' from penstock._queue")
	if got := f.claimOn(f.Conn, 9, "a"); len(got) != 3 {
		t.Errorf("of a burst that is due in a million years %d jobs have started, want 3", len(got))
	}
}

// Holds and rates outlive turns of the ring that they are in, and the ring stays small.
func TestGroupStatesAreCarriedOver(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	f.Exec("select penstock.set_group('q', 'rated', rate => 1, per => '1 day'), penstock.enqueue('q', 'x', group_key => 'rated'), penstock.enqueue('q', 'x', group_key => 'rated')")
	if got := f.claimOn(f.Conn, 2, "rated"); len(got) != 1 {
		t.Fatalf("%d jobs have started", len(got))
	}
	f.Exec("select penstock.set_group('q', 'busy', max_running => 2), penstock.enqueue_many('q', '{x,x,x}'::text[], group_keys => '{busy,busy,busy}')")
	for range 2 { // of which each lists one
		if got := f.claimOn(f.Conn, 1, "busy"); len(got) != 1 {
			t.Fatalf("%d jobs have started", len(got))
		}
	}
	alive := f.text(`select substring(prosrc from 'not exists \(select from _group_state.*s\.n > r\.n\)\)') from pg_proc where proname = '_reclaim_pairs'`)
	f.Exec("select penstock.hold_group('q', 'held', '1 day', 'first')")
	for round := range 5 {
		f.Exec("select penstock.hold_group('q', 'held', '1 day', 'round ' || $1::int), penstock.hold_group('q', 'short', '1 day')", round)
		f.Exec("select penstock.hold_group('q', 'short', '0')")
		f.Exec("select penstock.hold_group('q', 'g' || i, '1 ms') from generate_series(1, 1000) i")
		for range 5 {
			f.Exec("update penstock._pair set again = null")
			f.Exec("select penstock._reclaim_pair('_group_state', 65536, $1)", alive)
		}
		f.wantText(fmt.Sprintf("held round %d", round), "select string_agg(group_key || ' ' || reason, ', ') from penstock.group_policies('q') where held_until > now() + interval '1 h'")
		if got := f.claimOn(f.Conn, 2, "rated"); len(got) != 0 {
			t.Errorf("after %d turns the rate let %d more start", round, len(got))
		}
		if got := f.claimOn(f.Conn, 2, "busy"); len(got) != 0 {
			t.Errorf("after %d turns the limit let %d more start", round, len(got))
		}
	}
	if size := f.pairSize("_group_state"); size > 1<<20 {
		t.Errorf("the ring has %d bytes", size)
	}
}

// Who may do it: an operator sets and holds, a worker holds, an enqueuer neither.
func TestWhoSetsPolicies(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const set, hold, list = "select penstock.set_group('q', 'a', weight => 2)", "select penstock.hold_group('q', 'a', '1 s')", "select * from penstock.group_policies('q')"
	for _, c := range []struct {
		grant           string
		allowed, denied []string
	}{
		{"grant_operator", []string{set, hold, list, "select * from penstock.queue_groups('q')"}, []string{"select * from penstock._group", "insert into penstock._group_state (queue, group_key) values (1, '')"}},
		{"grant_worker", []string{hold}, []string{set, list}},
		{"grant_enqueuer", nil, []string{set, hold, list}},
	} {
		name, asRole := f.role()
		f.Exec("select penstock."+c.grant+"('q', $1)", name)
		f.wantMay(asRole, c.allowed, c.denied)
	}
}

// Random claims, ends, deaths and limits of several sessions at once. No job starts while as many as may run hold leases, by the
// database's own order: a claim notes how many run in the transaction that holds the group's lock.
func TestLimitsWalk(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	env := suite.NewEnv(t)
	groups := []string{"", "a", "b"}
	const limit = 4
	f.Exec("select penstock.set_group('q', '*', max_running => $1)", limit)
	jobs := testseed.Steps(300)
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[$1::int]), group_keys => array(select ($2::text[])[1 + i % 3] from generate_series(1, $1::int) i))", jobs, groups)
	f.Exec("select penstock.set_queue('q', max_attempts => 1000000)")
	left := func(conn *pgx.Conn) (n int) {
		f.Must(conn.QueryRow(f.Ctx, "select (select count(*) from penstock.q) + (select count(*) from penstock._scheduled) + (select count(*) from penstock._lease)").Scan(&n))
		return n
	}
	const workers = 4
	conns := make([]*pgx.Conn, workers)
	for i := range conns {
		conns[i] = f.Connect()
	}
	f.Must(suite.Concurrently(workers, func(i int) error {
		random, conn := env.Random(i), conns[i]
		for step := 0; ; step++ {
			if step%20 == 0 && left(conn) == 0 {
				return nil
			}
			group := groups[random.IntN(len(groups))]
			var ids []int64
			err := pgx.BeginFunc(f.Ctx, conn, func(tx pgx.Tx) error {
				n, over := 1+random.IntN(3), 0
				rows, err := tx.Query(f.Ctx, "select lease from penstock.claim('q', $1, '1 h', $2, 'w')", n, group)
				if err != nil {
					return err
				}
				if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(ids) == 0 {
					return err
				}
				if err := tx.QueryRow(f.Ctx, "select count(*) from penstock._lease where group_key = $1", group).Scan(&over); err != nil {
					return err
				}
				if over > limit {
					return fmt.Errorf("%d jobs of the group %q run, %d may", over, group, limit)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if len(ids) > 0 {
				switch random.IntN(6) {
				case 0: // its worker dies, and the lease ends
					_, err = conn.Exec(f.Ctx, "select penstock.extend_many('q', $1, '1 ms')", ids)
				case 1:
					_, err = conn.Exec(f.Ctx, "select penstock.release_many('q', $1)", ids)
				case 2:
					_, err = conn.Exec(f.Ctx, "select penstock.retry('q', l, '0') from unnest($1::bigint[]) l", ids)
				default:
					_, err = conn.Exec(f.Ctx, "select penstock.ack_many('q', $1)", ids)
				}
			}
			if err == nil && step%5 == 0 {
				_, err = conn.Exec(f.Ctx, "select penstock.maintain_queue('q')")
			}
			if err := cmp.Or(err, f.Ctx.Err()); err != nil {
				return err
			}
		}
	}))
}

// The jobs that a call ends make room for those that it claims: a worker with as many slots as the limit needs one call for both.
func TestAcksMakeRoomInTheSameCall(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_group('q', 'a', max_running => 2), penstock.enqueue_many('q', array_fill('x'::text, array[6]), group_keys => array_fill('a'::text, array[6]))")
	held := f.claimOn(f.Conn, 3, "a")
	for range 2 {
		var more []leased
		rows, err := f.Conn.Query(f.Ctx, "select coalesce(id, 0), lease from penstock.ack_claim('q', $1, 3, group_key => 'a') where id is not null", []int64{held[0].lease, held[1].lease})
		f.Must(err)
		more, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l leased, err error) {
			err = row.Scan(&l.id, &l.lease)
			return l, err
		})
		f.Must(err)
		if len(more) != 2 {
			t.Fatalf("a call that ended two of two jobs that may run brought %d", len(more))
		}
		held = more
	}
}

// Claims that list all leases of their group list their own as well: as many jobs start as may, and no more.
func TestEachLeaseIsListed(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const limit = 200 // of 200 claims six list all leases
	f.Exec("select penstock.set_group('q', 'a', max_running => $1)", limit)
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[300]), group_keys => array_fill('a'::text, array[300]))")
	for n := range limit {
		if got := f.claimOn(f.Conn, 1, "a"); len(got) != 1 {
			t.Fatalf("the group is full while %d jobs of it run", n)
		}
	}
	if got := f.claimOn(f.Conn, 10, "a"); len(got) != 0 {
		t.Errorf("%d jobs run of %d that may, and %d were claimed", limit, limit, len(got))
	}
}

// Leases that appear in another order than their numbers count once. A claim may have begun when its group had no limit. Jobs that
// were claimed together before a limit may be parted afterwards.
func TestLeasesInAnotherOrder(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_group('q', 'other', weight => 2)")
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[90]), group_keys => array_fill('a'::text, array[90]))")
	tx := f.begin(f.Connect())
	if got := f.claimOn(tx, 3, "a"); len(got) != 3 {
		t.Fatal("no jobs")
	}
	limit := func(n int) { // with a rate, so that each claim notes which leases there are
		f.Exec("select penstock.set_group('q', 'a', max_running => $1, rate => 1000000, per => '1 s', burst => 1000000)", n)
	}
	claimed := func(when string, want int) {
		t.Helper()
		if got := f.claimOn(f.Conn, 50, "a"); len(got) != want {
			t.Errorf("%s, %d jobs were claimed, want %d", when, len(got), want)
		}
	}
	limit(1)
	claimed("one may run", 1)
	f.Must(tx.Commit(f.Ctx))
	f.Eventually("what was claimed before the limit is listed", func() bool {
		f.maintain()
		return f.Number("select count(*) from penstock._lease where listed is not true") == 0
	})
	claimed("4 run, of which 3 were claimed before the limit", 0)
	limit(5)
	claimed("4 run of 5 that may", 1)

	f.Exec("select penstock.create_queue('together')")
	f.Exec("select penstock.enqueue_many('together', array_fill('x'::text, array[90]), group_keys => array_fill('a'::text, array[90]))")
	f.Exec("select count(*) from penstock.ack_claim('together', '{}', 10, '1 h', group_key => 'a')") // in one row
	f.Exec("select penstock.set_group('together', 'a', max_running => 20, rate => 1000000, per => '1 s', burst => 1000000)")
	started := func() int64 {
		return f.Number("select count(*) from penstock.claim('together', 2, '1 h', group_key => 'a')")
	}
	for n := 10; n < 14; n += 2 {
		if got := started(); got != 2 {
			t.Errorf("%d jobs run of 20 that may, and %d were claimed", n, got)
		}
	}
	f.Exec("select penstock.retry('together', min(lease) + 2, '1 h') from penstock._lease where jobs is not null")
	f.wantText("0", "select count(*)::text from penstock._lease where jobs is not null")
	f.Exec(`select setval('penstock._lease_n', (select max(lease) >> 20 from penstock._lease) + 1)`) // much later
	for n := 13; n < 20; n += 2 {
		if got := started(); got != min(2, int64(20-n)) {
			t.Errorf("%d jobs run of 20 that may, and %d were claimed", n, got)
		}
	}
	if got := started(); got != 0 {
		t.Errorf("as many run as may, and %d were claimed", got)
	}
}

// What keeps a snapshot cannot see what others have claimed since. So it may not claim where a limit is set, of the queue or the group.
func TestLimitsNeedReadCommitted(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[4]), group_keys => '{a,b,a,b}')")
	for _, c := range []struct {
		set, lift string
		refused   bool
	}{
		{"set_queue('q', max_running => 1)", "set_queue('q', max_running => 0)", true},
		{"set_queue('q', rate => 1, per => '1 day')", "set_queue('q', rate => 0)", true},
		{"set_group('q', 'a', max_running => 1)", "set_group('q', 'a')", true},
		{"set_group('q', '*', rate => 1, per => '1 day')", "set_group('q', '*')", true},
		{"set_group('q', 'b', max_running => 1, weight => 2)", "set_group('q', 'b')", false},
	} {
		f.Exec("select penstock." + c.set)
		for _, level := range []string{"repeatable read", "serializable"} {
			tx := f.begin(f.Connect())
			_, err := tx.Exec(f.Ctx, "set transaction isolation level "+level)
			f.Must(err)
			_, err = tx.Exec(f.Ctx, "select penstock.claim('q', 1, group_key => 'a')")
			if got := pgerror.State(err) == "25001"; got != c.refused || !got && err != nil {
				t.Errorf("%s, %s: a claim from a said %v", c.set, level, err)
			}
			f.Must(tx.Rollback(f.Ctx))
		}
		f.Exec("select penstock." + c.lift)
	}
}

// One claim takes jobs of several groups, of each as many as its limit allows. A job that its acks end makes room in each of them. It works on every
// kind of connection.
func TestClaimOfSeveralGroups(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"prepared": "", "not prepared": "&default_query_exec_mode=exec", "simple": "&default_query_exec_mode=simple_protocol"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := jobsFixtureOn(t, postgrestest.Database(t)+mode, penstock.FIFO)
			for i := range 4 {
				for _, g := range []string{"a", "b", "c", "held"} {
					f.enqueue(penstock.NewJob{Group: g, Payload: []byte(fmt.Sprint(g, i))})
				}
			}
			f.Exec("select penstock.set_group('jobs', '*', max_running => 1), penstock.set_group('jobs', 'c', max_running => 3), penstock.hold_group('jobs', 'held', '1 h')")
			leases := map[string]int64{}
			want := func(acks []string, groups []string, n int, jobs ...string) {
				t.Helper()
				held := []int64{}
				for _, job := range acks {
					held = append(held, leases[job])
				}
				acked, claimed, err := f.queue.(driver.GroupClaimer).AckClaimGroups(f.Ctx, held, groups, driver.Claim{Jobs: n, Lease: time.Hour})
				f.Must(err)
				full := slices.Contains(acked, driver.Full)
				acked = slices.DeleteFunc(acked, func(lease int64) bool { return lease == driver.Full })
				slices.Sort(acked)
				slices.Sort(held)
				if !full || !slices.Equal(acked, held) || !slices.Equal(payloads(claimed), jobs) {
					t.Fatalf("claimed %q and ended %d, a limit is close: %t; want %q and %d", payloads(claimed), acked, full, jobs, held)
				}
				for _, j := range claimed {
					leases[string(j.Payload)] = j.Lease
				}
			}
			want(nil, []string{"a", "b", "c", "c", "held"}, 1, "a0", "b0", "c0", "c1")
			want(nil, []string{"a", "b", "c"}, 2, "c2")
			want([]string{"b0"}, []string{"a", "b", "c", "c"}, 1, "b1")
			want([]string{"a0", "c1", "c2"}, []string{"a", "b", "c", "c"}, 2, "a1", "c3")
			_, _, err := f.queue.(driver.GroupClaimer).AckClaimGroups(f.Ctx, nil, []string{"a", strings.Repeat("x", 300)}, driver.Claim{Jobs: 1, Lease: time.Hour})
			if field := (*penstock.FieldError)(nil); !errors.As(err, &field) {
				t.Errorf("a group that is too long: %v", err)
			}
		})
	}
}

// A claim under a queue's max_running counts the queue's leases. While a snapshot is pinned it steps over those that have ended, until their segment turns.
func TestMaxRunningWhileASnapshotIsPinned(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.pin()
	const ended = 6000
	f.Exec("select penstock.enqueue('q', i::text) from generate_series(1, 20) i")
	f.claim(1)
	f.Exec(`insert into penstock._lease (queue, attempt, lease_until, id, created_at, priority, worker, group_key, payload)
		select queue, attempt, lease_until, id, created_at, priority, worker, group_key, payload from penstock._lease, generate_series(1, $1)`, ended)
	f.Exec("delete from penstock._lease where lease > (select min(lease) from penstock._lease)")
	turn := func() {
		f.Helper()
		for range 6 { // the register moves, the rest does, the segment retires, leaves the list, is truncated
			f.Exec("select pg_stat_force_next_flush()")
			f.Exec("update penstock._pair set again = null")
			f.maintain()
		}
	}
	turn()
	f.wantText("0", "select pg_sequence_last_value('penstock._lease_slot')::text") // no claim would be faster
	f.Exec("select penstock.set_queue('q', max_running => 5)")
	const read = `select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint from pg_class c
		where c.relnamespace = 'penstock'::regnamespace and c.relname ~ '^_lease' and c.relkind = 'i'`
	claim := func() int64 {
		f.Helper()
		tx := f.begin(f.Conn)
		var before, after int64
		f.Must(tx.QueryRow(f.Ctx, read).Scan(&before))
		f.run(tx, "select penstock.claim('q')")
		f.Must(tx.QueryRow(f.Ctx, read).Scan(&after))
		f.Must(tx.Commit(f.Ctx))
		return after - before
	}
	if n := claim(); n < ended {
		t.Fatalf("a claim read %d entries of leases, want those of the %d that have ended", n, ended)
	}
	turn()
	if n := claim(); n > 10 {
		t.Errorf("after a turn a claim read %d entries of leases, want few", n)
	}
	f.wantText("3", "select count(*)::text from penstock._lease")
	at := f.text("select pg_sequence_last_value('penstock._lease_slot')::text")
	f.Exec("update penstock._lease set payload = (select convert_to(string_agg(md5(i::text), ''), 'UTF8') from generate_series(1, 50000) i)") // large ones that run
	turn()
	f.wantText(at, "select pg_sequence_last_value('penstock._lease_slot')::text")
}
