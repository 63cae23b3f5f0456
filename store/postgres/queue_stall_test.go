package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The name of a session that stands still between two statements of a function, while others continue.
const stopped = "stopped"

// stopHere is a statement with which rewrite has that session stop, until whileStopped lets it continue.
const stopHere = "perform pg_catalog.pg_advisory_xact_lock_shared(1) where pg_catalog.current_setting('application_name') operator(pg_catalog.=) '" + stopped + "';"

// stopAtList has the session stop after it has asked for the nth time which segments of a ring of two are listed.
func (f *fixture) stopAtList(ring string, nth int) {
	f.Helper()
	f.Exec(fmt.Sprintf(`create sequence asked;
		grant all on asked to public;
		create function read_and_wait(register regclass) returns int[] language plpgsql as $$
		declare listed constant int[] := case pg_sequence_last_value(register) when 0 then '{0}' when 1 then '{1}' when 2 then '{1,0}' else '{0,1}' end;
		begin
			if register = 'penstock.%s_slot'::regclass and current_setting('application_name') = '%s' and nextval('public.asked') = %d then
				perform pg_advisory_xact_lock_shared(1);
			end if;
			return listed;
		end $$;
		create or replace function penstock._listed(register regclass) returns int[] language sql as 'select public.read_and_wait(register)'`, ring, stopped, nth), pgx.QueryExecModeSimpleProtocol)
}

// whileStopped runs a statement that returns a text, on a session that stops, and something else meanwhile.
func (f *fixture) whileStopped(meanwhile func(), sql string, args ...any) (text string) {
	f.Helper()
	gate, conn, ended := f.begin(f.Connect()), f.Connect(), make(chan error, 1)
	f.exec(gate.Conn(), "select pg_advisory_xact_lock(1)")
	f.exec(conn, "set application_name = '"+stopped+"'")
	go func() { ended <- conn.QueryRow(f.Ctx, sql, args...).Scan(&text) }()
	f.Eventually("it is stopped", func() bool {
		select {
		case err := <-ended:
			f.Fatalf("it did not stop: %v", err)
		default:
		}
		return f.Number("select count(*) from pg_locks where pid = $1 and not granted and locktype = 'advisory'", conn.PgConn().PID()) == 1
	})
	meanwhile()
	f.Must(gate.Rollback(f.Ctx))
	f.Must(<-ended)
	return text
}

// turnPair has a ring of two segments turn: the rows of the first one are in the second one then. A session that has looked into the first one keeps
// that from being truncated, and not its rows from being carried over.
func (f *fixture) turnPair(ring string) func() {
	return func() {
		f.Helper()
		f.Eventually("the ring has turned", func() bool {
			f.Exec("select penstock._reclaim_pair($1, 1, 'true')", ring)
			return f.Number(fmt.Sprintf("select (select count(*) from penstock.%[1]s_1) - (select count(*) from penstock.%[1]s_0)", ring)) > 0 &&
				f.Number("select pg_sequence_last_value($1)", "penstock."+ring+"_slot") == 1
		})
	}
}

// tryToTurnPair is turnPair for a session that may keep the ring from turning.
func (f *fixture) tryToTurnPair(ring string) func() {
	return func() {
		f.Helper()
		for n := 0; n < 20 && f.Number("select pg_sequence_last_value($1)", "penstock."+ring+"_slot") != 1; n++ {
			f.Exec("select penstock._reclaim_pair($1, 1, 'true')", ring)
		}
	}
}

const payloadsOf = "select coalesce(string_agg(convert_from(payload, 'UTF8'), ','), '') from "

// A job that waits for another of its key is not forgotten where the ring of delayed jobs turns between
// the list of its segments and the look into them.
func TestJobOfAKeyThatMovesWhileItIsMadeReady(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 3; nth++ { // for the first job of a key, for one with a smaller id, and to move it
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			lease := f.leaseOne("k")
			f.Exec("select penstock.enqueue('q', 'next', key => 'k')")
			f.wantText("", payloadsOf+"penstock.claim('q', 10)")
			f.wantText("1", "select count(*)::text from penstock._scheduled_0 where due = 'infinity'")
			f.stopAtList("_scheduled", nth)
			f.whileStopped(f.turnPair("_scheduled"), "select penstock.ack('q', $1)::text", lease)
			f.wantText("next", payloadsOf+"penstock.claim('q', 10)")
		})
	}
}

// So is a job that waits for a barrier.
func TestJobThatMovesWhileItsBarrierOpens(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.heldBy("a")
	lease := f.claim(1)[0].lease
	f.stopAtList("_scheduled", 1)
	f.whileStopped(f.turnPair("_scheduled"), "select penstock.ack('q', $1)::text", lease)
	f.wantText("done", payloadsOf+"penstock.claim('q', 10)")
}

// A job does not run while another of its key does, whose lease would move while the claim looks for it.
func TestKeyWhoseLeaseMovesWhileItIsLookedFor(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	lease := f.leaseOne("k")
	f.Exec("select penstock.enqueue('q', 'next', key => 'k')")
	f.stopAtList("_lease", 1)
	if got := f.whileStopped(f.tryToTurnPair("_lease"), payloadsOf+"penstock.claim('q', 10)"); got != "" {
		t.Errorf("%s runs while another job of its key does", got)
	}
	f.Exec("select penstock.ack('q', $1)", lease)
	f.maintain()
	f.wantText("next", payloadsOf+"penstock.claim('q', 10)")
}

// Nor before one with a smaller id, which is carried over to a segment that came into use meanwhile.
func TestKeyWhoseFirstJobIsCarriedOver(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			f.Exec("select penstock.enqueue('q', 'first', key => 'k', group_key => 'g'), penstock.enqueue('q', 'next', key => 'k')")
			f.stopAtList("_scheduled", 1)
			got := f.whileStopped(func() {
				f.enqueueWide("q", 1, 100)
				f.Exec("select penstock._maintain_ring('q')")
				f.wantText("1", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)
				next := f.begin(f.Connect()) // that one stays
				f.run(next, "select from penstock.q where key = 'k' and group_key = '' for update")
				f.Exec(`select penstock._carry_over('penstock."_q.0"', 'penstock."_q.1"', 1, 1000)`)
				f.Must(next.Rollback(f.Ctx))
			}, payloadsOf+"penstock.claim('q', 10) where key = 'k'")
			if got != "" {
				t.Errorf("%s runs before the first job of its key", got)
			}
			f.wantText("first", payloadsOf+"penstock.claim('q', 10, group_key => 'g')")
		})
	}
}

// The limits of a queue and of a group hold, and a rate, where the rows that are counted move meanwhile.
func TestLimitWhoseCountMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ limit, ring string }{
		{"penstock.set_queue('q', max_running => 1)", "_lease"},
		{"penstock.set_queue('q', rate => 1, per => '1 h')", "_group_state"},
		{"penstock.set_group('q', 'g', max_running => 1)", "_group_state"},
		{"penstock.set_group('q', 'g', rate => 1, per => '1 h')", "_group_state"},
	} {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			f.Exec("select " + c.limit)
			f.Exec("select penstock.enqueue_many('q', '{a,b,c}', group_keys => '{g,g,g}')")
			f.wantText("a", payloadsOf+"penstock.claim('q', group_key => 'g')")
			f.stopAtList(c.ring, 1)
			if got := f.whileStopped(f.turnPair(c.ring), payloadsOf+"penstock.claim('q', group_key => 'g')"); got != "" {
				t.Errorf("%s runs beyond the limit", got)
			}
		})
	}
}

// A dedup_key that moves while it is looked for is found.
func TestDedupKeyThatMovesWhileItIsLookedFor(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'a', dedup_key => 'd')")
	f.stopAtList("_dedup", 1)
	f.whileStopped(f.turnPair("_dedup"), "select penstock.enqueue('q', 'b', dedup_key => 'd')::text")
	f.wantText("a", payloadsOf+"penstock.claim('q', 10)")
}

// A group gets a limit. A claim that had begun before commits while the jobs that run are listed: its job counts as well.
func TestGroupLimitOfAClaimThatCommitsMeanwhile(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c}', group_keys => '{g,g,g}')")
	f.wantText("a", payloadsOf+"penstock.claim('q', group_key => 'g')")
	late := f.begin(f.Connect())
	f.run(late, "select penstock.claim('q', group_key => 'g')")
	f.rewrite(`update (penstock\.)?_lease l set listed = true`, stopHere+` \&`)
	f.whileStopped(func() { f.Must(late.Commit(f.Ctx)) }, "select coalesce(penstock.set_group('q', 'g', max_running => 2)::text, '')")
	f.Exec(`select setval('penstock."_q.maintained"', 0)`)
	f.maintain()
	f.wantText("", payloadsOf+"penstock.claim('q', group_key => 'g')")
}

// A skip map is made while the ring moves on, and a job is carried over to a segment that is not on its list. The job is found.
func TestSkipMapWhileTheRingMovesOn(t *testing.T) {
	t.Parallel()
	for _, ordering := range []string{"fifo", "lifo"} {
		t.Run(ordering, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, ordering)
			f.Exec("insert into penstock.q (payload, group_key) values ('left', 'g')")
			f.Exec(`select penstock."_q.skip_map"('g', 0::smallint), penstock."_q.skip_map"('g', 0::smallint)`) // it knows how far the sequence had come
			f.rewrite(`late  int8multirange := '{}';\nbegin`, `\& `+stopHere)
			f.whileStopped(func() {
				f.leaveBehind("select")
				f.Exec(`select penstock._carry_over('penstock."_q.0"', 'penstock."_q.1"', 1, 100)`)
			}, `select coalesce(min(s.n), 0)::text from penstock."_q.skip_map"('g', 0::smallint) s`)
			got := ""
			for range 3 {
				got += f.text(payloadsOf + "penstock.dequeue('q', 1, 'g')")
			}
			if got != "left" {
				t.Errorf("took %q, want the job that was left", got)
			}
		})
	}
}

// A unique job whose deadline has passed is found, and moves before it is looked at. It does not run any more: it must not hide a new one.
func TestLateUniqueJobThatMovesMeanwhile(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'other', deadline => now() + interval '1 day')") // the queue knows that there are deadlines
	f.Exec("select penstock.enqueue('q', 'late', unique_key => 'u', deadline => now() - interval '1 s', not_before => now() + interval '1 h')")
	f.rewrite(`order by u\.state = 'leased', u\.id desc limit 1;`, `\& `+stopHere)
	f.whileStopped(func() {
		f.Exec("select penstock.advance_queue('q', '2 h')")
	}, "select penstock.enqueue('q', 'new', unique_key => 'u')::text")
	f.wantText("other,new", payloadsOf+"penstock.claim('q', 10)")
}

// An INSERT has chosen a segment, and comes to it after the ring has gone round, just before the segment is listed again. Skip maps say that no such job is left.
func TestRowThatIsLateByARound(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'late', key => 'k')")
	f.Exec("delete from penstock.q")
	f.Exec("select penstock.enqueue('q', i::text) from generate_series(1, 100) i")
	for range 50 {
		f.Exec(`select penstock."_q.skip_map"('', 0::smallint)`)
		f.claim(1)
	}
	f.Exec("select penstock.enqueue('q', repeat(md5(i::text), 20)) from generate_series(1, 200) i") // the segment is full
	f.rewrite(`perform setval\(ring, \(pg_sequence_last_value\(ring\) / 1024 \+ 1\)`, stopHere+` \&`)
	f.Exec(`select setval('penstock."_q.maintained"', 0)`)
	f.whileStopped(func() {
		f.Exec("insert into penstock.q (seq, slot, key, payload) values (1, 1, 'k', 'late')")
	}, "select coalesce(penstock._maintain_ring('q', true)::text, '')")
	f.wantText("1", `select (pg_sequence_last_value('penstock."_q.ring"') % 1024)::text`)
	f.wantText("1", "select count(*)::text from penstock.claim('q', 400) where convert_from(payload, 'UTF8') = 'late'")
}

// So is one that is delayed beyond its deadline, the first of the queue that has one: no job of the ring has raised the flag for that.
func TestLateUniqueJobThatIsDelayed(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'late', unique_key => 'u', deadline => now() - interval '1 s', not_before => now() + interval '1 h')")
	f.Exec("select penstock.enqueue('q', 'new', unique_key => 'u')")
	f.wantText("new", payloadsOf+"penstock.claim('q', 10)")
}

// A dequeue stands still between a look at the queue's flags and its take, and the queue's first barrier is made. Its job is not taken without
// being counted: the barrier opens.
func TestFirstBarrierWhileADequeueStandsStill(t *testing.T) {
	t.Parallel()
	const one, some, from = "penstock.dequeue('q')", "penstock.dequeue('q', 5)", `select setval('penstock."_q.next"', %d), setval('penstock."_q.fast_path"', 40000000000 * 4096 + %d)`
	for _, c := range []struct {
		name, ordering, after, take string
		next, mode                  int64 // as registers have them
	}{
		{"scan", "fifo", `return job\.row;\n    end if;`, one, 0, -1},
		{"position", "fifo", `job  penstock\.job;\nbegin`, one, 1, 0},
		{"free", "fifo", `job  penstock\.job;\nbegin`, one, 0, 1024},
		{"first", "fifo", `job  penstock\.job;\nbegin`, one, 0, 2048},
		{"newest", "lifo", `job  penstock\.job;\nbegin`, one, -10, 1024},
		{"down", "lifo", `job  penstock\.job;\nbegin`, one, 3, 1024},
		{"by skip map", "fifo", `p int := 0;\nbegin`, some, 0, -1},
		{"batch", "fifo", `p int := 0;\nbegin`, some, 0, 1024},
		{"keys", "fifo", `turns bigint\[\];\nbegin`, some, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, c.ordering)
			f.stopClock()
			if c.name == "keys" {
				f.Exec("select penstock.enqueue('q', 'keyed', key => 'k')")
			}
			f.Exec(`select penstock."_q.skip_map"('', 0::smallint)`)
			if c.mode >= 0 {
				f.Exec(fmt.Sprintf(from, c.next, c.mode))
			}
			if c.name == "down" {
				f.Exec(`select setval('penstock."_q.top"', 2)`)
			}
			f.rewrite(c.after, `\& `+stopHere)
			got := f.whileStopped(func() { f.heldBy("a") }, payloadsOf+c.take)
			for range 4 {
				got += "," + f.text(payloadsOf+c.take)
			}
			if !strings.Contains(got, "a") || !strings.Contains(got, "done") {
				t.Errorf("took %q, want the job that holds the barrier, and the one that waits for it", got)
			}
		})
	}
}

// A claim stands still before it writes its leases, for as long as their ring takes to turn. They are found where it writes them.
func TestLeaseThatIsWrittenAfterTheRingHasTurned(t *testing.T) {
	t.Parallel()
	const claim, scan = `empty int := 0;\nbegin`, `granted record; -- see _admit\nbegin`
	for _, c := range []struct {
		name, after string
		jobs        int
		mode        int64 // as the register has it
	}{
		{"claim/few", claim, 1, 2048},
		{"claim/backlog", claim, 7, 1024},
		{"claim/together", claim, 10, 1024},
		{"claim/drawn", `9223372036854775807 end; begin`, 7, 0},
		{"scan/some", scan, 7, -1},
		{"scan/together", scan, 10, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			f.stopClock()
			f.leaseOne("")
			f.Exec("insert into penstock.q (payload) select 'x' from generate_series(1, $1)", c.jobs)
			if c.mode >= 0 {
				f.Exec(`select setval('penstock."_q.next"', 1), setval('penstock."_q.fast_path"', 40000000000 * 4096 + $1)`, c.mode)
			}
			f.rewrite(c.after, `\& `+stopHere)
			leases := f.whileStopped(f.tryToTurnPair("_lease"), `select coalesce(string_agg(lease::text, ','), '') from penstock."_q.claim"($1, '1 h', '', '', '{}')`, c.jobs)
			f.wantText(fmt.Sprint(c.jobs), "select count(*)::text from penstock.ack_many('q', string_to_array($1, ',')::bigint[])", leases)
		})
	}
}

// A row stands still between the choice of its segment and that segment's lock, and its ring turns meanwhile if it can. A job that waits for
// another of its key is found when that ends, and a lease when it is acked.
func TestRowThatIsLateForItsSegment(t *testing.T) {
	t.Parallel()
	for _, ring := range []string{"_scheduled", "_lease"} {
		t.Run(ring, func(t *testing.T) {
			t.Parallel()
			f := newJobs(t, "fifo")
			f.Exec("select penstock.enqueue('q', 'later', not_before => now() + interval '1 day')")
			lease := f.leaseOne("k")
			if ring == "_scheduled" {
				f.Exec("select penstock.enqueue('q', 'next', key => 'k')")
			} else {
				f.Exec("select penstock.enqueue('q', 'next', key => 'l')")
			}
			f.Exec(fmt.Sprintf(`create function late_for(register regclass) returns smallint language plpgsql as $$
				declare here constant smallint := pg_sequence_last_value(register) %% 2;
				begin %s return here; end $$;
				alter table penstock.%s alter slot set default late_for('penstock.%[2]s_slot')`, stopHere, ring), pgx.QueryExecModeSimpleProtocol)
			leases := f.whileStopped(f.tryToTurnPair(ring), "select coalesce(string_agg(lease::text, ','), '') from penstock.claim('q', 10)")
			f.Exec("select penstock.ack('q', $1)", lease)
			if ring == "_scheduled" {
				f.wantText("next", payloadsOf+"penstock.claim('q', 10)")
			} else {
				f.wantText("1", "select count(*)::text from penstock.ack_many('q', string_to_array($1, ',')::bigint[])", leases)
			}
		})
	}
}

// A call of inbox_due stands still. Maintenance that has begun before turns the ring of its inbox, and another transaction hands over messages of the
// key. The messages that follow are not late.
func TestInboxDueWhileTheRingTurns(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	wantReleased(t, f.receive(arrival("k", "1", ""), 0), "1")
	wantReleased(t, f.receive(arrival("k", "3", "2"), 0))
	wantReleased(t, f.receive(arrival("k", "5", "4"), 0))
	start, _ := f.turn(f.Conn)
	f.rewrite(`keys := keys \|\| early\.keys;\n    end loop;`, `\& `+stopHere)
	maintains := f.begin(f.Connect()) // since before the call, which leaves it to this one
	f.run(maintains, "select penstock.maintain_inbox('billing')")
	if got := f.whileStopped(func() {
		for now := start; now == start; now, _ = f.turn(f.Conn) {
			f.age(maintains.Conn())
		}
		f.Must(maintains.Commit(f.Ctx))
		wantReleased(t, f.receive(arrival("k", "2", "1"), 0), "2", "3")
	}, "select coalesce(string_agg(message_id, ','), '') from penstock.inbox_due('billing')"); got != "5" {
		t.Errorf("%q came behind the gap, want 5", got)
	}
	wantReleased(t, f.receive(arrival("k", "6", "5"), 0), "6")
	wantReleased(t, f.receive(arrival("k", "7", "6"), 0), "7")
}

// Maintenance stands still before it looks at the history of a queue, and other maintenance begins. Jobs that are kept meanwhile stay.
func TestHistoryWhileItsMaintenanceStandsStill(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_queue('q', keep_done => '1 h')")
	f.Exec("select penstock.ack('q', $1)", f.leaseOne(""))
	f.Exec(`select setval('penstock."_q.done_turn"', pg_sequence_last_value('penstock."_q.done_turn"') - 8 * 1000 * 1200)`) // 20 minutes ago
	f.Exec(`select setval('penstock."_q.maintained"', 0)`)
	f.rewrite(`slot     int;\nbegin`, `\& `+stopHere)
	f.whileStopped(func() {
		f.maintain()
		f.Exec("select penstock.ack('q', $1)", f.leaseOne(""))
	}, "select coalesce(penstock.maintain_queue('q')::text, '')")
	f.wantText("1,2", "select string_agg(id::text, ',' order by id) from penstock.done_jobs('q')")
}
