package postgres_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/testseed"
)

// fromPosition has the next claim from a backlog, or a dequeue of one, go by the position. The clock is stopped.
func (f *fixture) fromPosition(mode int) {
	f.Helper()
	f.Exec(fmt.Sprintf(`select setval('penstock."_q.next"', coalesce(pg_sequence_last_value('penstock."_q.next"'), 0)),
		setval('penstock."_q.fast_path"', 1000000000::bigint * 40 * 4096 + %d * 1024 + pg_sequence_last_value('penstock."_q.ring"') %% 1024)`, mode))
}

// together claims up to n jobs as a worker does that ends many at a time.
func (f *fixture) together(n int) []int64 {
	f.Helper()
	f.fromPosition(1)
	rows, err := f.Conn.Query(f.Ctx, "select lease from penstock.ack_claim('q', '{}', $1, '1 min', '', 'w')", n)
	f.Must(err)
	leases, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	f.Must(err)
	return leases
}

// inOneRow is a queue with twelve jobs whose leases share a row, and others.
func inOneRow(t *testing.T) (f *fixture, leases []int64) {
	t.Helper()
	f = newJobs(t, "fifo")
	f.stopClock()
	f.Exec("select penstock.enqueue_many('q', array(select 'job ' || x from generate_series(1, 300) x))")
	leases = f.together(12)
	if f.Number("select count(*) from penstock._lease where jobs is not null") != 1 || len(leases) != 12 {
		t.Fatal("the claim did not go by the position")
	}
	f.wantText("1 12", "select (select count(*) from penstock._lease) || ' ' || (select running from penstock.queue_status('q'))")
	return f, leases
}

// leaseTogether has twelve new jobs leased in one row.
func (f *fixture) leaseTogether() (leases []int64) {
	f.Helper()
	f.stopClock()
	f.Exec("select penstock.enqueue_many('q', array_fill('job'::text, array[20]))")
	f.Exec(`select setval('penstock."_q.next"', pg_sequence_last_value('penstock."_q.seq"') - 20)`)
	leases = f.together(12)
	if len(leases) != 12 || leases[0]&1 != 1 {
		f.Fatal("the claim did not go by the position")
	}
	return leases
}

// heldOf returns which of the leases a statement returns, in order.
func (f *fixture) heldOf(sql string, args ...any) []int64 {
	f.Helper()
	rows, err := f.Conn.Query(f.Ctx, sql+" order by 1", args...)
	f.Must(err)
	leases, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	f.Must(err)
	return leases
}

func (f *fixture) wantHeld(want []int64, sql string, args ...any) {
	f.Helper()
	if got := f.heldOf(sql, args...); !slices.Equal(got, want) {
		f.Errorf("%s: %v, want %v", sql, got, want)
	}
}

// Jobs that were claimed together end one by one, or some at a time, whatever becomes of the others.
func TestJobsOfOneClaimEndApart(t *testing.T) {
	t.Parallel()
	const ack = "select penstock.ack_many('q', $1)"
	for name, c := range map[string]struct {
		sql  string // of the fourth to the sixth
		left int    // of the others' leases
		want string // where those three are then
	}{
		"ack":         {"select from penstock.ack_many('q', $1)", 9, ""},
		"release":     {"select from penstock.release_many('q', $1)", 9, "ready 0 job 4, ready 0 job 5, ready 0 job 6"},
		"pause":       {"select from penstock.release_many('q', $1, '1 hour')", 9, "later -1 job 4, later -1 job 5, later -1 job 6"},
		"retry":       {"select penstock.retry('q', l, '1 hour', 'no') from unnest($1::bigint[]) l", 9, "later 1 job 4, later 1 job 5, later 1 job 6"},
		"dead_letter": {"select penstock.dead_letter('q', l, 'no') from unnest($1::bigint[]) l", 9, "dead 1 job 4, dead 1 job 5, dead 1 job 6"},
		"cancel": {`select penstock.cancel('q', array(select j.id from penstock._lease l, unnest(l.jobs) j where j.lease = any ($1)
			union all select id from penstock._lease where lease = any ($1)))`, 9, ""},
		"extend": {"select from penstock.extend_many('q', $1, '1 hour')", 12, ""},
		"expire": {`with w as (update penstock._lease set lease_until = now() - interval '1 s' where $1::bigint[] is not null) select penstock.maintain_queue('q')`, 0,
			"ready 1 job 4, ready 1 job 5, ready 1 job 6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, leases := inOneRow(t)
			mixed := []any{nil, leases[1], leases[0], leases[0] - 2, leases[0] - 4, leases[11] + 2, leases[1], -1, 0, int64(math.MaxInt64), leases[1] + 1}
			f.wantHeld(leases[:2], ack, mixed)
			f.wantHeld(nil, ack, mixed)
			f.Exec(c.sql, leases[3:6])
			if name == "expire" {
				f.Exec("select penstock.maintain_queue('q')") // the first may have looked before the change
			}
			f.wantText(c.want, `select coalesce(string_agg(w || ' ' || attempt || ' ' || convert_from(payload, 'UTF8'), ', ' order by convert_from(payload, 'UTF8')), '') from (
				select 'ready' as w, attempt, payload from penstock.q union all select 'later', attempt, payload from penstock._scheduled
				union all select 'dead', attempt, payload from penstock._dead_job) x where convert_from(payload, 'UTF8') in ('job 1', 'job 2', 'job 4', 'job 5', 'job 6')`)
			rest := leases[2:]
			if c.left == 9 {
				rest = slices.Concat(leases[2:3], leases[6:])
			} else if c.left == 0 {
				rest = nil
			}
			f.wantText(fmt.Sprint(len(rest)), "select running from penstock.queue_status('q')")
			f.wantHeld(rest, "select penstock.extend_many('q', $1, '1 hour')", leases)
			f.wantHeld(rest, ack, leases)
			f.wantText("0", "select count(*) from penstock._lease")
		})
	}
}

// A claim in a transaction that has written goes by the position too. Each of its jobs is held, also behind a position without a job.
func TestLeasesOfOneClaimInATransaction(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.stopClock()
	f.Exec("select penstock.enqueue_many('q', array_fill('job'::text, array[600]))")
	f.Exec("select penstock.cancel('q', array(select x from generate_series(3, 300) x))")
	f.Exec("begin")
	f.Exec("select pg_current_xact_id()")
	leases := f.together(12)
	f.Exec("commit")
	slices.Sort(leases)
	if len(leases) != 12 || f.Number("select count(*) from penstock.q") != 290 {
		t.Fatalf("claimed %d jobs", len(leases))
	}
	f.wantText("12", "select running from penstock.queue_status('q')")
	f.wantHeld(leases, "select penstock.extend_many('q', $1, '1 hour')", leases)
	f.wantHeld(leases, "select penstock.ack_many('q', $1)", leases)
	f.wantText("0", "select count(*) from penstock._lease")
}

// The leases of one claim are found where their ring has turned, are extended in one row, and belong to no other
// claim.
func TestLeasesOfOneClaimInOneRow(t *testing.T) {
	t.Parallel()
	f, leases := inOneRow(t)
	f.wantHeld(leases[:5], "select penstock.ack_many('q', $1)", leases[:5])
	f.turnLeases()
	f.wantHeld(leases[5:], "select penstock.extend_many('q', $1, '1 hour')", leases)
	f.turnLeases()
	f.wantText("1", "select count(*) from penstock._lease where jobs is not null and lease_until > now() + interval '50 min'")
	names := f.heldOf("select l.id from (select id from penstock._lease union all select j.id from penstock._lease, unnest(jobs) j) l where l.id is not null")
	for i, id := range names {
		found, err := f.store.FindJobs(f.Ctx, admin.Find{In: "q", ID: fmt.Sprint(id), Limit: 10})
		f.Must(err)
		if running := len(found) == 1 && found[0].Where[0].State == "running" && found[0].Where[0].Worker == "w" && string(found[0].Message.Payload) == fmt.Sprint("job ", i+1); running != (i >= 5) {
			t.Errorf("job %d, of which the first five are done: found %v", i+1, found)
		}
	}
	running, err := f.store.Running(f.Ctx, "q", 1000)
	f.Must(err)
	if len(running) != 7 || len(names) != 12 {
		t.Errorf("%d of %d jobs run, want 7 of 12: %v", len(running), len(names), running)
	}
	tx := f.begin(f.Connect())
	_, err = tx.Exec(f.Ctx, "select penstock.ack_many('q', $1)", leases[5:7])
	f.Must(err)
	f.Must(tx.Rollback(f.Ctx))
	f.Exec("select penstock.create_queue('other')")
	f.wantHeld(nil, "select penstock.ack_many('other', $1)", leases)
	f.wantHeld(nil, "select penstock.extend_many('other', $1, '1 hour')", leases)
	f.wantHeld(leases[5:], "select penstock.ack_many('q', $1)", leases)
}

// All leases of a claim as they came are one delete, but no other ones are, however alike.
func TestAckOfAWholeClaim(t *testing.T) {
	t.Parallel()
	const ack = "select penstock.ack_many('q', $1)"
	f, leases := inOneRow(t)
	f.Exec("select penstock.create_queue('other')")
	f.wantHeld(nil, "select penstock.ack_many('other', $1)", leases)
	f.wantHeld(leases, ack, leases)
	f.wantHeld(nil, ack, leases)
	for name, third := range map[string]func(leases []int64) any{
		"the second twice": func(leases []int64) any { return leases[1] },
		"null":             func([]int64) any { return nil },
		"nobody's":         func(leases []int64) any { return leases[2] + 1 },
	} {
		leases := f.leaseTogether()
		var named []any
		for _, l := range leases {
			named = append(named, l)
		}
		named[2] = third(leases)
		f.Log("in place of the third: " + name)
		f.wantHeld(slices.Concat(leases[:2], leases[3:]), ack, named)
		f.wantHeld(leases[2:3], ack, leases)
	}
}

// Where positions are empty, and where jobs are large, a claim takes all that is there.
func TestClaimTogetherOfWhatIsThere(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.stopClock()
	for _, payload := range []string{"small", strings.Repeat("x", 2_500_000)} {
		f.Exec("select penstock.enqueue_many('q', array_fill($1::text, array[20])); delete from penstock.q where seq % 3 = 0", pgx.QueryExecModeSimpleProtocol, payload)
		there := int(f.Number("select count(*) from penstock.q"))
		leases := f.together(20)
		leases = append(leases, f.together(20)...)
		slices.Sort(leases)
		if len(slices.Compact(slices.Clone(leases))) != there {
			t.Errorf("%d leases of %d jobs", len(leases), there)
		}
		var beside []int64
		for _, l := range leases {
			beside = append(beside, l+2)
		}
		beside = slices.DeleteFunc(beside, func(l int64) bool { return slices.Contains(leases, l) })
		f.wantHeld(nil, "select penstock.ack_many('q', $1)", beside)
		f.wantHeld(leases, "select penstock.ack_many('q', $1)", leases)
	}
	f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[20]))")
	f.Exec(`delete from penstock.q where seq % 3 = 0`)
	f.Exec(`select setval('penstock."_q.next"', pg_sequence_last_value('penstock."_q.seq"') - 20)`)
	f.together(20)
	if f.Number("select count(*) from penstock._lease where done::text like '%010%'") == 0 {
		t.Error("a claim by the position shares no row in which the places of jobs that were gone are empty")
	}
}

// Jobs of a group, and of a LIFO, share a row as well. Jobs with a key, of which the first one is committed while the claim
// is made, do not, and the next of its key waits.
func TestClaimTogetherBySkipMap(t *testing.T) {
	t.Parallel()
	const claim = "select lease from penstock.ack_claim('q', '{}', 100, '1 min', 'g', 'w')"
	for _, order := range []string{"fifo", "lifo"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, order)
			f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[20]), group_keys => array_fill('g'::text, array[20]))")
			leases := f.heldOf(claim)
			f.wantText("1 20", "select (select count(*) from penstock._lease) || ' ' || (select running from penstock.queue_status('q'))")
			f.wantHeld(leases, "select penstock.release_many('q', $1)", leases)
			f.wantText("20", "select count(*) from penstock.q where group_key = 'g' and attempt = 0")

			tx := f.begin(f.Connect())
			_, err := tx.Exec(f.Ctx, "lock table penstock._lease in share mode")
			f.Must(err)
			waiting := f.Connect()
			claimed := make(chan error, 1)
			go func() {
				_, err := waiting.Exec(f.Ctx, claim)
				claimed <- err
			}()
			f.Eventually("the claim waits", func() bool {
				return f.Number("select count(*) from pg_locks where pid = $1 and not granted", waiting.PgConn().PID()) == 1
			})
			f.Exec("select penstock.enqueue('q', 'x', key => 'k', group_key => 'g') from generate_series(1, 2)")
			f.Must(tx.Commit(f.Ctx))
			f.Must(<-claimed)
			f.heldOf(claim)
			f.wantText("21", "select running from penstock.queue_status('q')")
		})
	}
}

// Claims that were never acked come back some hundred jobs at a time: the rows that a maintenance writes do not grow
// with them.
func TestManyClaimsOfSeveralExpire(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.leaseTogether()
	f.Exec("delete from penstock._lease where jobs is null; delete from penstock.q", pgx.QueryExecModeSimpleProtocol)
	f.Exec(`with l as (delete from penstock._lease returning *)
		insert into penstock._lease (lease, queue, lease_until, worker, priority, group_key, done, jobs)
		select base, queue, now() - interval '1 s', 'w', 0, 'g', set_bit(set_bit(repeat('0', 256)::bit(256), 0, 1), 7, 1),
		       array(select row(base + 2 * i, g * 255 + i, now(), 1, '{"n": "1"}', 'job', null)::penstock._claimed from generate_series(1, 255) i)
		  from l, generate_series(1, 60) g, lateral (select (g::bigint << 40) + 1 as base) b`)
	f.Eventually("some are ready again", func() bool {
		f.Exec("select penstock.maintain_queue('q')")
		return f.Number("select count(*) from penstock.q") > 0
	})
	f.wantText("15240", "select ready + running from penstock.queue_status('q')")
	f.wantText("0", "select count(*) from penstock._lease where jobs is null")
	// A call gives back 500 jobs or more, of two claims here, and does so twenty times at most: a slow server stops sooner.
	if left := f.Number("select count(*) from penstock._lease"); left < 60-20*2 || left > 60-2 || left%2 != 0 {
		t.Errorf("one call left %d claims of 60", left)
	}
	f.Eventually("all are", func() bool {
		f.Exec("select penstock.maintain_queue('q')")
		return f.Number("select count(*) from penstock._lease") == 0
	})
	f.wantText("15240 15240 15240", `select count(*) || ' ' || count(distinct id) || ' ' || count(*) filter (where id % 255 <> 7 and attempt = 1 and group_key = 'g' and headers ->> 'n' = '1'
		and payload = 'job' and failures #>> '{0,error}' = 'lease expired, held by w') from penstock.q`)
}

// The numbers of leases grow, whether their rows are shared or not: what is claimed first is shown first.
func TestNumbersOfSharedLeasesGrow(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select setval('penstock._lease_n', 1::bigint << 30)")
	first := f.leaseOne("")
	shared := f.leaseTogether()
	f.Exec("select penstock.enqueue('q', 'job')")
	last := f.claim(1)[0].lease
	running, err := f.store.Running(f.Ctx, "q", 1000)
	f.Must(err)
	var shown []int64
	for _, r := range running {
		if r.Lease <= 0 {
			t.Errorf("lease %d", r.Lease)
		}
		if r.Lease == first || r.Lease == last || slices.Contains(shared, r.Lease) {
			shown = append(shown, r.Lease)
		}
	}
	if want := slices.Concat([]int64{first}, shared, []int64{last}); !slices.Equal(shown, want) {
		t.Errorf("running are %v, want the first before the others: %v", shown, want)
	}
}

// Each call that ends or changes several leases locks them in one order, wherever they are: by segment, in each the shared
// rows by number and then the others. For each of them: while another session has it, those before it are locked, those
// behind it are not. The maintenance of the ring is kept away, as it carries leases over to the other segment.
func TestLeasesAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	const fastPath = `select setval('penstock."_q.fast_path"', (date_part('epoch', clock_timestamp()) * 40)::bigint * 4096 + 2048 + pg_sequence_last_value('penstock."_q.ring"') %% 1024); `
	for name, sql := range map[string]string{
		"ack":     "select * from penstock.ack_many('q', '%[1]s')",
		"claim":   "select lease from penstock.ack_claim('q', '%[1]s')",
		"fast":    fastPath + "select lease from penstock.ack_claim('q', '%[1]s')",
		"extend":  "select * from penstock.extend_many('q', '%[1]s', '1 min')",
		"release": "select * from penstock.release_many('q', '%[1]s')",
		"cancel":  "select penstock.cancel('q', '%[2]s')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			turning := f.begin(f.Connect())
			defer turning.Rollback(f.Ctx)
			f.exec(turning.Conn(), "select pg_advisory_xact_lock('penstock._lease'::regclass::oid::int, 0), setval('penstock._lease_slot', 3)")
			// Of a shared row the first job is named or, in every second one, both: those are extended as they are. The
			// rows were written in another order, and end in another.
			var rows, leases, ids []int64
			for segment := range int64(2) {
				for i := range int64(8) {
					base := (segment*8+i+1)<<20 + (1 - i/4)
					rows, ids = append(rows, base), append(ids, base)
					leases = append(leases, base+2*(1-i/4))
					if i < 4 && i%2 == 1 {
						leases, ids = append(leases, base+4), append(ids, base+1)
					}
				}
			}
			f.Exec(`insert into penstock._lease (slot, queue, lease, lease_until, worker, priority, group_key, id, attempt, created_at, payload, done, jobs)
				select n / 8, 1, r, now() + interval '1 hour' - n * interval '1 s', 'w', 0, '', case when r & 1 = 0 then r end, 1, now(), '',
				       case when r & 1 = 1 then ~set_bit(set_bit(repeat('0', 256)::bit(256), 1, 1), 2, 1) end,
				       case when r & 1 = 1 then array[row(r + 2, r, now(), 1, null, '', null), row(r + 4, r + 1, now(), 1, null, '', null)]::penstock._claimed[] end
				  from unnest($1::bigint[]) with ordinality u(r, i), lateral (select i - 1 as n) o order by i desc`, rows)
			random := testseed.New(t.Name(), 0)
			random.Shuffle(len(leases), func(i, k int) { leases[i], leases[k] = leases[k], leases[i] })
			sql := fmt.Sprintf(sql, braces(leases), braces(ids))
			holder, caller := f.Connect(), f.Connect()
			for i, row := range rows {
				held, called := f.begin(holder), f.begin(caller)
				f.exec(holder, fmt.Sprintf("select from penstock._lease where lease = %d for update", row))
				ended := make(chan error, 1)
				go func() {
					_, err := caller.PgConn().Exec(f.Ctx, sql).ReadAll()
					ended <- err
				}()
				f.Eventually("it waits", func() bool {
					if len(ended) > 0 {
						t.Fatalf("it did not wait for %d: %v", row, <-ended)
					}
					return f.Number("select count(*) from pg_locks where not granted and pid = $1", caller.PgConn().PID()) > 0
				})
				f.wantHeld(rows[i+1:], "select lease from (select lease from penstock._lease where lease = any ($1) for update skip locked) l", rows)
				f.Must(held.Rollback(f.Ctx))
				f.Must(<-ended)
				f.Must(called.Rollback(f.Ctx))
			}
		})
	}
}

func braces(ids []int64) string {
	return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]") + "}"
}

// Claims that are extended whole stay whole, in both segments.
func TestClaimsExtendedWholeStayWhole(t *testing.T) {
	t.Parallel()
	f, older := inOneRow(t)
	f.Exec(`select setval('penstock._lease_slot', 3 - pg_sequence_last_value('penstock._lease_slot') % 2)`)
	all := slices.Concat(older, f.leaseTogether())
	f.wantHeld(slices.Sorted(slices.Values(all)), "select x from penstock.extend_many('q', $1, '1 min') x", all)
	if rows := f.Number("select count(*) from penstock._lease where jobs is not null"); rows != 2 {
		t.Errorf("after the extension %d claims are whole, want 2", rows)
	}
}

// A claim that acks some of a row of several brings as many jobs as it asks for, also once there are keys.
func TestClaimThatAcksTogetherBringsNoMore(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	leases := f.leaseTogether()
	f.Exec("select penstock.enqueue('q', i::text, key => 'k' || i) from generate_series(1, 5) i")
	f.wantText("1", "select count(*) from penstock.ack_claim('q', $1, 1) where id is not null", leases[:2])
}
