package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

const watchedOne = int64(1) << 40 // a job that is watched counts this much more

// watchFrom makes barriers of so few jobs watch one of them.
func (f *fixture) watchFrom(jobs int) {
	f.Helper()
	f.Exec(fmt.Sprintf(`do $$ declare f text; begin
		foreach f in array '{_recount,_turn_barriers}'::text[] loop
			execute replace(pg_get_functiondef(('penstock.' || f)::regproc), '10000', '%d');
		end loop; end $$`, jobs))
}

// ackClaim ends jobs and claims others with one call. These share a row if they are 8 and more.
func (f *fixture) ackClaim(on querier, ends []int64, n int) (leases []int64, err error) {
	rows, err := on.Query(f.Ctx, "select coalesce(id, 0), lease from penstock.ack_claim('q', coalesce($1::bigint[], '{}'), $2, '1 h')", ends, n)
	if err != nil {
		return nil, err
	}
	ended := 0
	var id, lease int64
	_, err = pgx.ForEachRow(rows, []any{&id, &lease}, func() error {
		if id == 0 {
			ended++
		} else {
			leases = append(leases, lease)
		}
		return nil
	})
	if err == nil && ended != len(ends) {
		err = fmt.Errorf("%d of %d jobs ended", ended, len(ends))
	}
	return leases, err
}

func (f *fixture) mustAckClaim(on querier, ends []int64, n int) []int64 {
	f.Helper()
	leases, err := f.ackClaim(on, ends, n)
	f.Must(err)
	return leases
}

func (f *fixture) wantRunning(barrier, want int64) {
	f.Helper()
	if got := f.Number("select running from penstock._barrier_state($1)", barrier); got != want {
		f.Fatalf("the count of the barrier is %d above %d times 2^40, want %d above %d times", got%watchedOne, got/watchedOne, want%watchedOne, want/watchedOne)
	}
}

func (f *fixture) wantRegister(want int64) {
	f.Helper()
	if got := f.Number("select case when last_value = 0 then 0 else penstock._watched(last_value) end from penstock._barrier_watched"); got != want {
		f.Fatalf("the register says that barrier %d has a job that is watched, want %d", got, want)
	}
}

// Of 10,000 jobs that hold a barrier one is watched, the last. Until it ends, claims that end all jobs of a row write nothing to the barrier's table. Its end
// counts those that are left, and watches another while they are many.
func TestBarrierWatchesOneOfMany(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	b := f.heldBy(slices.Repeat([]string{"x"}, 10100)...)
	const last = "select string_agg(seq::text, ',' order by seq) from penstock.q where headers ->> 'penstock-holds' like '0%'"
	f.wantText("10101", last)
	f.wantRunning(b, watchedOne+10100)
	row := f.mustAckClaim(f.Conn, f.mustAckClaim(f.Conn, nil, 20), 20)
	rows := func() int64 { return f.Number("select count(*) from penstock._barrier") }
	ends := func() {
		t.Helper()
		f.wantRegister(b)
		before := rows()
		row = f.mustAckClaim(f.Conn, row, 20)
		if n := rows(); n != before {
			t.Errorf("an end of 20 jobs wrote %d rows of a barrier with a job that is watched", n-before)
		}
	}
	ends()
	f.wantRunning(b, watchedOne+10080)
	f.Exec("select penstock.cancel('q', array[10101::bigint])")
	f.wantRunning(b, watchedOne+10059) // 20 of them run
	f.wantText("10100", last)
	f.wantRegister(0)
	row = f.mustAckClaim(f.Conn, row, 20)
	ends()
	f.Exec("select penstock.cancel('q', array(select seq from penstock.q order by seq))")
	f.wantClaim(5)
	f.wantRunning(b, 20)
	f.Exec("select penstock.cancel('q', array(select j.id from penstock._lease l cross join unnest(l.jobs) j))")
	f.wantClaim(5, 1)
}

// Ends meet the end of the job that is watched: they have not committed, or wait for it, and it may not commit. All jobs are counted, each once.
func TestBarrierEndOfTheWatchedJob(t *testing.T) {
	t.Parallel()
	var f *fixture
	var one, two *pgx.Conn
	type of struct {
		barrier     int64
		row, others []int64 // 20 jobs that share a row, and 29
		last, lease int64   // the job that is watched, and its lease
	}
	commit := map[bool]string{true: "commit", false: "rollback"}
	ack := func(on querier, lease int64) error {
		rows, err := on.Query(f.Ctx, "select penstock.ack('q', $1)", lease)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		return err
	}
	waits := func(conn *pgx.Conn, what string, do func() error) <-chan error {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- do() }()
		f.Eventually(what, func() bool {
			return f.Number("select count(*) from pg_locks where locktype = 'advisory' and not granted and pid = $1", conn.PgConn().PID()) == 1
		})
		return done
	}
	inFlight := func(j of, how string) {
		f.run0(one, "begin")
		f.mustAckClaim(one, j.row, 1)
		if how == "killed" {
			f.wantRunning(j.barrier, watchedOne+50)
		}
		ended := waits(two, "the end of the job that is watched waits for others", func() error { return ack(two, j.lease) })
		switch how {
		case "killed":
			f.Exec("select pg_terminate_backend($1)", one.PgConn().PID())
			one = f.Connect()
		case "prepared":
			f.run0(one, "prepare transaction 'ends'")
			f.Exec("commit prepared 'ends'")
		default:
			f.run0(one, how)
		}
		f.Must(<-ended)
		f.wantRunning(j.barrier, map[bool]int64{true: 29, false: 49}[how == "commit" || how == "prepared"])
	}
	meets := func(j of, commits bool) {
		f.run0(one, "begin")
		f.Must(ack(one, j.lease))
		f.run0(one, "set constraints all immediate")
		ended := waits(two, "an end waits for that of the job that is watched", func() error { _, err := f.ackClaim(two, j.row, 1); return err })
		f.run0(one, commit[commits])
		f.Must(<-ended)
		f.wantRunning(j.barrier, map[bool]int64{true: 29, false: watchedOne + 30}[commits])
	}
	for name, do := range map[string]func(of){
		"others commit":       func(j of) { inFlight(j, "commit") },
		"others roll back":    func(j of) { inFlight(j, "rollback") },
		"others are killed":   func(j of) { inFlight(j, "killed") },
		"others are prepared": func(j of) { inFlight(j, "prepared") },
		"it commits first":    func(j of) { meets(j, true) },
		"it rolls back first": func(j of) { meets(j, false) },
		"its savepoint is undone": func(j of) {
			f.run0(one, "begin; savepoint s")
			f.Must(ack(one, j.lease))
			f.run0(one, "set constraints all immediate; rollback to s")
			f.mustAckClaim(two, j.row, 1)
			f.run0(one, "commit")
			f.wantRunning(j.barrier, watchedOne+30)
		},
		"constraints are immediate": func(j of) {
			f.Exec("select penstock.release('q', l) from unnest($1::bigint[]) l", append([]int64{j.lease}, j.others...))
			row := f.mustAckClaim(f.Conn, nil, 30) // it is the first of them
			f.run0(one, "begin; set constraints all immediate")
			_, err := one.Exec(f.Ctx, "select penstock.ack_many('q', $1)", row[:5])
			f.Must(err)
			f.run0(one, "commit")
			f.wantRunning(j.barrier, 45)
		},
		"others wait behind it": func(j of) {
			f.run0(one, "begin")
			f.mustAckClaim(one, j.others, 1)
			ended := waits(two, "the end of the job that is watched waits for others", func() error { return ack(two, j.lease) })
			three := f.Connect()
			behind := waits(three, "an end waits behind it", func() error { _, err := f.ackClaim(three, j.row, 1); return err })
			f.run0(one, "commit")
			f.Must(<-ended)
			f.Must(<-behind)
			f.wantRunning(j.barrier, 0)
		},
		"it dies and is retried": func(j of) {
			f.Exec("select penstock.dead_letter('q', $1, 'no')", j.lease)
			f.wantRunning(j.barrier, 49)
			f.Exec("select penstock.retry_dead_jobs('q', array[$1::bigint])", j.last)
			f.wantRunning(j.barrier, watchedOne+50)
			f.mustAckClaim(one, j.others, 1)
			f.wantRunning(j.barrier, watchedOne+21) // the register is not set yet
			f.mustAckClaim(one, j.row, 1)
			f.wantRunning(j.barrier, watchedOne+21)
		},
		"it is retried": func(j of) {
			f.Exec("select penstock.retry('q', $1, '0')", j.lease)
			f.wantRegister(j.barrier)
			f.mustAckClaim(two, j.row, 1)
			f.wantRunning(j.barrier, watchedOne+50)
			f.Exec("select penstock.cancel('q', array[$1::bigint])", j.last)
			f.wantRunning(j.barrier, 29)
		},
		"a snapshot is kept": func(j of) {
			f.Exec("begin isolation level repeatable read")
			f.wantError("25001", "select penstock.ack_claim('q', $1, 1)", j.row)
			f.Exec("rollback")
		},
	} {
		f = newJobs(t, "fifo") // a fresh one: where few jobs wait, each claimed one has a row
		f.watchFrom(40)
		one, two = f.Connect(), f.Connect()
		var j of
		j.barrier = f.Number("select penstock.barrier('q')")
		done := f.Number("select penstock.enqueue('q', 'done', waits_for => array[$1::bigint])", j.barrier)
		f.Exec("select penstock.enqueue_many('q', array_fill('x'::text, array[70]), holds => $1)", j.barrier)
		f.Exec("select penstock.seal('q', $1)", j.barrier)
		row := f.mustAckClaim(f.Conn, nil, 20)
		j.row = f.mustAckClaim(f.Conn, row, 20)
		j.others = f.mustAckClaim(f.Conn, nil, 29)
		last := f.claim(5)
		if len(row) != 20 || len(j.row) != 20 || len(j.others) != 29 || len(last) != 1 {
			t.Fatalf("%s: claimed %d, %d, %d and %d jobs", name, len(row), len(j.row), len(j.others), len(last))
		}
		f.wantRegister(j.barrier)
		j.last, j.lease = last[0].id, last[0].lease
		t.Log(name)
		do(j)
		f.Exec("select penstock.cancel('q', array(select coalesce(j.id, l.id) from penstock._lease l left join unnest(l.jobs) j on true) || array(select coalesce(id, seq) from penstock.q where headers ->> 'penstock-holds' is not null))")
		f.wantRunning(j.barrier, 0)
		f.Exec("select penstock.ack('q', $1)", f.wantClaim(5, done)[0].lease)
	}
}

// The register is set after the choice has committed, and for one barrier at a time. A value that another database had means nothing.
func TestBarrierWatchedRegister(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.watchFrom(40)
	f.Exec("begin")
	f.Exec("set constraints all immediate")
	undone := f.heldBy(slices.Repeat([]string{"x"}, 50)...)
	f.wantRunning(undone, watchedOne+50)
	f.Exec("select penstock.enqueue('q', 'x', holds => $1)", undone)
	f.Exec("rollback")
	f.wantRegister(0)

	f.Exec("select setval('penstock._barrier_watched', 1 # (1::bigint << 31))")
	first := f.heldBy(slices.Repeat([]string{"x"}, 50)...)
	second := f.heldBy(slices.Repeat([]string{"y"}, 50)...)
	f.Exec("select penstock.enqueue('q', 'x', holds => $1)", first)
	f.wantRegister(first)
	f.Exec("select penstock.enqueue('q', 'y', holds => $1)", second)
	f.wantRegister(first)
	const watchedOf = "select penstock.cancel('q', array(select seq from penstock.q where headers ->> 'penstock-holds' = '0' || $1))"
	f.Exec("insert into penstock.q (payload, headers) select payload, headers from penstock.q where headers ->> 'penstock-holds' = '0' || $1", fmt.Sprint(first))
	f.wantRunning(first, watchedOne+52)
	f.Exec(watchedOf, fmt.Sprint(first))
	f.wantRunning(first, watchedOne+51) // the next one
	f.wantRegister(0)
	f.Exec("select penstock.enqueue('q', 'y', holds => $1)", second)
	f.wantRegister(second)
}

// Claims and acks at random, which may be undone, prepared or killed, while the jobs that are watched are cancelled, retried and die. The job that
// waits is let go in the same commit that ends the last one, which a reader checks all the time.
func TestBarrierWatchedAtRandom(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.watchFrom(40)
	env := suite.NewEnv(t)
	const unended = `select (select count(*) from (select t.headers from penstock.q t union all select s.headers from penstock._scheduled s union all select d.headers from penstock._dead_job d
			union all select l.headers from penstock._lease l where l.jobs is null
			union all select j.headers from penstock._lease l cross join unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) x
		where ltrim(x.headers ->> 'penstock-holds', '0') = $1::bigint::text)`
	for round := range testseed.Steps(8) {
		n := 60 + 40*round%5
		b := f.heldBy(slices.Repeat([]string{"x"}, n)...)
		f.Exec("insert into penstock.q (payload) select 'behind' from generate_series(1, 600)") // where fewer wait, each claimed one has a row
		ctx, stop := context.WithCancel(f.Ctx)
		var wg sync.WaitGroup
		left := func(on *pgx.Conn) (jobs, waiting int64) {
			f.Must(on.QueryRow(f.Ctx, unended+", (select count(*) from penstock._scheduled s where s.headers ->> 'penstock-waits-for' = $1::bigint::text)", b).Scan(&jobs, &waiting))
			return jobs, waiting
		}
		for i := range 4 {
			random := env.Random(100*round + i)
			wg.Go(func() {
				conn := f.Connect()
				var held []int64
				for ctx.Err() == nil {
					var err error
					exec := func(sql string, args ...any) {
						if err == nil {
							_, err = conn.Exec(f.Ctx, sql, args...)
						}
					}
					end, keep := random.IntN(8), held
					exec("begin")
					if end == 0 {
						exec("savepoint s")
					}
					switch random.IntN(8) {
					case 0:
						if len(held) > 1 {
							exec("select penstock.ack_many('q', $1)", held[:len(held)/2])
							held = held[len(held)/2:]
						}
					case 1:
						exec("select penstock.cancel('q', array(select seq from penstock.q where headers ->> 'penstock-holds' like '0%'))")
					case 2:
						if len(held) > 0 {
							exec("select penstock.dead_letter('q', $1, 'no')", held[len(held)-1])
							held = held[:len(held)-1]
						}
						exec("select penstock.retry_dead_jobs('q', array(select id from penstock._dead_job where $1 or headers ->> 'penstock-holds' like '0%'))", random.IntN(2) == 0)
					case 3:
						if len(held) > 0 {
							exec("select penstock.retry('q', $1, '0')", held[len(held)-1])
							held = held[:len(held)-1]
						}
					case 4:
						if random.IntN(4) == 0 {
							exec("set constraints all immediate")
						}
						fallthrough
					default:
						if err == nil {
							held, err = f.ackClaim(conn, held, 8+random.IntN(13))
						}
					}
					switch {
					case err != nil || end == 1:
						_, _ = conn.Exec(f.Ctx, "rollback")
						held = keep
					case end == 0:
						exec("rollback to s")
						exec("commit")
						held = keep
					case end == 2:
						name := fmt.Sprintf("x%d_%d", i, random.Uint64())
						exec("prepare transaction '" + name + "'")
						if random.IntN(2) == 0 {
							exec("rollback prepared '" + name + "'")
							held = keep
						} else {
							exec("commit prepared '" + name + "'")
						}
					case end == 3 && random.IntN(4) == 0:
						f.Must(conn.PgConn().Conn().Close())
						conn = f.Connect()
						held = keep
					default:
						exec("commit")
						if err != nil {
							held = keep
						}
					}
					if err != nil { // another has taken some, or a deadlock
						t.Log(err)
						_, _ = conn.Exec(f.Ctx, "rollback")
						_, err = conn.Exec(f.Ctx, "select penstock.release('q', l) from unnest($1::bigint[]) l", held)
						if err != nil {
							t.Log(err)
						}
						held = nil
					}
				}
				if len(held) > 0 {
					_, _ = conn.Exec(f.Ctx, "select penstock.ack_many('q', $1)", held)
				}
			})
		}
		check := func() int64 {
			jobs, waiting := left(f.Conn)
			if (jobs > 0) != (waiting > 0) {
				stop()
				wg.Wait()
				t.Fatalf("round %d: %d jobs hold the barrier and have not ended, and %d wait for it; now %v", round, jobs, waiting,
					f.text("select format('%s, watched %s', s.running % 1099511627776, s.running / 1099511627776) from penstock._barrier_state($1) s", b))
			}
			return jobs
		}
		for step := 0; check() > 0 && step < 400; step++ {
			f.Exec("select penstock.retry_dead_jobs('q', array(select id from penstock._dead_job))")
		}
		stop()
		wg.Wait()
		if jobs := check(); jobs > 0 {
			t.Logf("round %d: %d were left", round, jobs)
			f.Exec("select penstock.cancel('q', array(select coalesce(j.id, l.id) from penstock._lease l left join unnest(l.jobs) j on true) || array(select coalesce(id, seq) from penstock.q where headers ->> 'penstock-holds' is not null)" +
				" || array(select id from penstock._scheduled where headers ->> 'penstock-holds' is not null))")
			f.Exec("select penstock.discard_dead_jobs('q', array(select id from penstock._dead_job))")
			check()
		}
		f.Exec("select penstock.cancel('q', array(select coalesce(j.id, l.id) from penstock._lease l left join unnest(l.jobs) j on true) || array(select coalesce(id, seq) from penstock.q))")
	}
}

func (f *fixture) run0(conn *pgx.Conn, sql string) {
	f.Helper()
	_, err := conn.Exec(f.Ctx, sql)
	f.Must(err)
}

// A collation may take "05" for greater than "1": the mark of the job that is watched is known by its first character.
func TestBarrierWatchesByAnyCollation(t *testing.T) {
	t.Parallel()
	server, database := newJobs(t, "fifo"), testserver.Database(t, testserver.PostgresURL(t))
	name := database[strings.LastIndex(database, "/")+1:]
	name, _, _ = strings.Cut(name, "?")
	server.Exec("drop database " + name)
	if server.Number("select current_setting('server_version_num')::int / 10000") < 15 || server.Number("select count(*) from pg_collation where collprovider = 'i'") == 0 {
		t.Skip("a database has a collation of ICU from PostgreSQL 15 on, built with it")
	}
	server.Exec("create database " + name + " template template0 locale_provider icu icu_locale 'en-u-kn-true'")
	f := fixtureOn(t, database, postgres.Options{Segments: 4})
	f.Exec("select penstock.create_queue('q')")
	f.watchFrom(10)
	f.Exec("select penstock.barrier('q')") // 1, which a number's order takes for equal to 01
	b := f.heldBy(slices.Repeat([]string{"x"}, 20)...)
	f.wantRunning(b, watchedOne+20)
	f.Exec("select penstock.cancel('q', array(select seq from penstock.q))")
	f.wantClaim(5, 1)
}

// A queue is dropped with a barrier that is not open, of which a job is watched and others run. Another transaction has sealed one of its barriers, and
// commits later. A queue of the same name begins anew: no row of the old one is left, no job waits, and the register is free for it.
func TestBarriersOfADroppedQueue(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.watchFrom(40)
	old := f.heldBy(slices.Repeat([]string{"x"}, 100)...)
	f.mustAckClaim(f.Conn, f.mustAckClaim(f.Conn, nil, 20), 20)
	f.wantRegister(old)
	seals := f.begin(f.Connect())
	f.run(seals, "select penstock.seal('q', $1)", f.Number("select penstock.barrier('q')"))
	f.Exec("select penstock.drop_queue('q')")
	f.Must(seals.Commit(f.Ctx))
	f.Exec("select penstock.create_queue('q')")
	f.wantText("0", "select count(*)::text from penstock._barrier where part >= 16")
	f.wantError("23514", "select penstock.enqueue('q', 'x', holds => $1)", old)
	b := f.heldBy(slices.Repeat([]string{"x"}, 100)...)
	row := f.mustAckClaim(f.Conn, f.mustAckClaim(f.Conn, nil, 20), 20)
	f.wantRegister(b)
	f.wantRunning(b, watchedOne+80)
	for range 3 {
		row = f.mustAckClaim(f.Conn, row, 20)
	}
	f.wantClaim(5)
	f.mustAckClaim(f.Conn, row, 1)
	f.wantRunning(b, 0)
	f.wantText("0", "select count(*)::text from penstock._scheduled where due = '-infinity'")
}
