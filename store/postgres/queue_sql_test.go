package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres"
)

func TestTheFirstPauseIsTwoSeconds(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.wantText("true", "select penstock.retry('q', $1, error => 'one')::text", f.wantClaim(1, 1)[0].lease)
	if pause := f.Number("select (1000 * extract(epoch from due - (failures->-1->>'at')::timestamptz))::bigint from penstock._scheduled"); pause < 1500 || pause > 2500 {
		t.Errorf("the first pause is %d ms, want 2 s ± 20%%", pause)
	}
}

func TestExtendedLeaseLasts(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{x,y,z}')")
	jobs := f.wantClaim(3, 1, 2, 3)
	f.Exec("update penstock._lease set lease_until = now() - interval '1 s'")
	f.Exec("select penstock.extend('q', $1, '1 h')", jobs[0].lease)
	f.wantText("{"+fmt.Sprint(jobs[1].lease)+"}", "select array(select penstock.extend_many('q', array[$1, 99]::bigint[], '1 h'))::text", jobs[1].lease)
	f.maintain()
	f.wantClaim(2, 3)
	f.wantText(fmt.Sprintf("{%d,%d}", jobs[0].lease, jobs[1].lease), "select array(select penstock.ack_many('q', array[$1, $2, $3]::bigint[]))::text", jobs[0].lease, jobs[1].lease, jobs[2].lease)
}

func TestEnqueueManyInOrder(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.wantText("{1,2,3}", `select array(select penstock.enqueue_many('q', '{a,b,c}', keys => '{k,null,l}', group_keys => '{"","",g}', priorities => '{0,-1,null}',
		headers => array['{"h":"1"}', null, null]::jsonb[]))::text`)
	f.wantText("{4,5}", "select array(select penstock.enqueue_many('q', '{a,b}', not_befores => array[now() + interval '1 h', null]))::text")
	f.wantClaim(9, 2, 1, 5)
}

// A kind is a header, by whichever way a job comes.
func TestKindsBySQL(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x', kind => 'a')")
	f.Exec("select penstock.enqueue('q', '{}'::jsonb, kind => 'b', headers => '{\"h\": \"1\", \"penstock-kind\": \"b\"}')")
	f.Exec("select penstock.enqueue_bytes('q', 'x', kind => 'c', headers => '{\"penstock-kind\": \"\"}')")
	f.Exec("select penstock.enqueue('q', 'x', kind => '')")
	f.Exec("select penstock.enqueue('q', 'x', kind => null)")
	f.wantText("{6,7,8}", "select array(select penstock.enqueue_many('q', '{x,y,z}', kinds => array['d', null, '']))::text")
	f.wantText("{9,10}", "select array(select penstock.enqueue_many('q', '{x,y}', kinds => '{null,e}', headers => array['{\"h\": \"1\"}', null]::jsonb[], priorities => '{0,1}'))::text")
	f.Exec("insert into penstock.q (payload, headers) values ('x', '{\"penstock-kind\": \"f\"}')")
	f.Exec("select penstock.schedule('q', 's', '@daily', 'x', kind => 'g')")
	f.Exec("update penstock._schedule set next = now()")
	f.maintain()
	f.wantText("1a 2b+ 3c 4 5 6d 7 8 9+ 10e 11f 12g", `select string_agg(id || coalesce(headers ->> 'penstock-kind', '') || case when headers ? 'h' then '+' else '' end, ' ' order by id)
		from penstock.claim('q', 100)`)
}

// A group that is null is the default one, as it is for enqueue.
func TestNullGroup(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.wantText("{1,2,3,4,5}", "select array(select penstock.enqueue_many('q', '{a,b,c,d,e}'))::text")
	f.wantText("1", "select id::text from penstock.claim('q', 1, '1 h', null, repeat('w', 256))")
	f.wantText("2", "select id::text from penstock.ack_claim('q', null, group_key => null, worker => null)")
	f.wantText("3", "select id::text from penstock.dequeue('q', 1, null)")
	f.wantText("{4,5}", "select array(select id from penstock.dequeue('q', 2, null))::text")
}

// Jobs that an open transaction has claimed count among those that run.
func TestLimitOfRunningJobs(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b}')")
	f.Exec("select penstock.set_queue('q', max_running => 1)")
	tx := f.begin(f.Connect())
	if got := f.claimOn(tx, 9, ""); len(got) != 1 || got[0].id != 1 {
		t.Fatalf("the first: %v", got)
	}
	f.wantClaim(9)
	f.Must(tx.Rollback(f.Ctx))
	f.wantClaim(9, 1)
}

// Claims in autocommit do the housekeeping.
func TestClaimMaintains(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.wantClaim(1, 1)
	f.Exec("update penstock._lease set lease_until = now() - interval '1 s'")
	f.Eventually("the job comes back", func() bool { return len(f.claim(1)) == 1 })
	f.Exec("update penstock._lease set lease_until = now() - interval '1 s'")
	// A dequeue does it only if it is sure not to be part of a longer transaction.
	f.Eventually("dequeue returns it", func() bool {
		return f.Number("select count(*) from penstock.dequeue('q')", pgx.QueryExecModeSimpleProtocol) == 1
	})
}

// An open transaction uses the queue, outbox or inbox that is dropped, and locks its tables in another order. Neither that transaction nor another
// session waits for the drop.
func TestDropsWaitForTransactionsAndHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, open, other, more string }{
		{"queue", "select penstock.dequeue('dropped')", "select penstock.enqueue('dropped', 'x')", "select penstock.enqueue('dropped', 'y')"},
		{"outbox", "select penstock.publish('dropped', 'x')", "select penstock.publish('dropped', 'y')", "select count(*) from penstock.dropped"},
		{"inbox", "select penstock.inbox('dropped', 'x')", "select penstock.inbox('dropped', 'y')", "select penstock.inbox('dropped', 'z')"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, postgres.Options{})
			f.Exec("select penstock.create_" + c.what + "('dropped')")
			if c.what == "queue" {
				f.Exec(c.other)
			}
			tx := f.begin(f.Connect())
			f.run(tx, c.open)
			dropping := f.Connect()
			dropped := make(chan error, 1)
			go func() {
				_, err := dropping.Exec(f.Ctx, "select penstock.drop_"+c.what+"('dropped')")
				dropped <- err
			}()
			f.Eventually("it is being dropped", func() bool {
				return f.Number("select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", dropping.PgConn().PID()) == 1
			})
			f.Exec("set lock_timeout = '20s'")
			f.Exec(c.other)
			f.run(tx, c.more)
			drop := map[string]func(context.Context, string) error{"queue": f.store.DropQueue, "outbox": f.store.DropOutbox, "inbox": f.store.DropInbox}[c.what]
			if err := drop(stuck{f.Ctx, time.Now().Add(3 * time.Second)}, "dropped"); !strings.Contains(fmt.Sprint(err), fmt.Sprintf("nothing was dropped: session %d (", tx.Conn().PgConn().PID())) {
				t.Errorf("while a transaction has it locked, a drop with a limit says %v", err)
			}
			// PostgreSQL looks at the time of a statement when it begins. One that is set later stands for one that it has lost.
			lost := "do $$ begin perform set_config('statement_timeout', '100ms', true), penstock.drop_" + c.what + "('dropped'); end $$"
			if _, err := f.Conn.Exec(f.Ctx, lost); !strings.Contains(fmt.Sprint(err), "(SQLSTATE 57014)") {
				t.Errorf("a drop whose time has passed says %v", err)
			}
			f.Must(tx.Commit(f.Ctx))
			f.Must(<-dropped)
			if _, err := f.Conn.Exec(f.Ctx, c.other); !strings.Contains(fmt.Sprint(err), "(SQLSTATE 42P01)") {
				t.Errorf("it was dropped, and a call says %v", err)
			}
		})
	}
}

// Dead letters are listed page by page, with the error of the last attempt.
func TestDeadJobsBySQL(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x ' || i, kind => 'a') from generate_series(1, 3) i")
	f.Exec("select penstock.dead_letter('q', lease, 'error ' || id) from penstock.claim('q', 3)")
	f.wantText("1 x 1 a error 1 1,2 x 2 a error 2 1", `select string_agg(concat_ws(' ', id, convert_from(payload, 'UTF8'), headers ->> 'penstock-kind', error, jsonb_array_length(failures)), ',' order by id)
		from penstock.dead_jobs('q', 2)`)
	f.wantText("3", "select string_agg(id::text, ',') from penstock.dead_jobs('q', after => 2)")
	f.wantText("3", "select count(*)::text from penstock.dead_jobs('q', null, null)")
}

// A schedule by SQL, in the caller's transaction.
func TestSchedulesBySQL(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.schedule('q', 's', '@yearly', '{}'::jsonb, kind => 'a', dedup_key => 'd', skip_overlap => true)")
	listed := func(want string) {
		t.Helper()
		f.wantText(want, "select concat_ws(' ', name, cron, paused, skip_overlap, last_job, kind, dedup_key, convert_from(payload, 'UTF8')) from penstock.schedules('q')")
	}
	listed("s @yearly f t a d {}")
	f.wantText("true", "select (penstock.resume_schedule('q', 's') = (select next from penstock.schedules('q')))::text")
	tx := f.begin(f.Connect())
	var made int64
	var duplicate bool
	for _, want := range []bool{false, true} {
		f.Must(tx.QueryRow(f.Ctx, "select e.id, penstock.deduplicated() from penstock.run_schedule('q', 's') e(id)").Scan(&made, &duplicate))
		if made != 1 || duplicate != want {
			t.Errorf("run_schedule made the job %d, a duplicate: %t", made, duplicate)
		}
	}
	f.Must(tx.Rollback(f.Ctx))
	listed("s @yearly f t a d {}")
	f.Exec("select penstock.pause_schedule('q', 's')")
	f.wantText("2", "select penstock.run_schedule('q', 's')::text")
	listed("s @yearly t t 2 a d {}")
	f.Exec("select penstock.schedule('q', 's', '@yearly', 'x')")
	listed("s @yearly t f 2  x")
}

// Whether the last job has ended is seen while a transaction that moves it is open, and among many jobs by a few reads.
func TestOverlapIsFoundByItsPlace(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.schedule('q', 's', '@yearly', 's', priority => 3, skip_overlap => true)")
	f.Exec("select penstock.enqueue('q', 'x', priority => 3) from generate_series(1, 20000)")
	f.Exec("select penstock.run_schedule('q', 's')")
	f.Exec("select penstock.enqueue('q', 'x', priority => 3) from generate_series(1, 20000)")
	overlaps := func(want bool) {
		t.Helper()
		f.wantText(fmt.Sprint(want), "select penstock._overlaps('q', s)::text from penstock._schedule s")
	}
	overlaps(true)
	if n := f.reads("select penstock._overlaps('q', s) from penstock._schedule s"); n > 10 {
		t.Errorf("among 40,000 jobs it reads %d entries", n)
	}
	id := f.Number("select last_job from penstock._schedule")
	f.Exec("select penstock.cancel('q', array(select i from generate_series(1, 40001) i where i <> $1))", id)
	tx := f.begin(f.Connect())
	var lease int64
	f.Must(tx.QueryRow(f.Ctx, "select lease from penstock.claim('q')").Scan(&lease))
	overlaps(true) // it is in the ring until the claim commits
	f.Must(tx.Commit(f.Ctx))
	overlaps(true)
	tx = f.begin(f.Connect())
	_, err := tx.Exec(f.Ctx, "select penstock.ack('q', $1)", lease)
	f.Must(err)
	overlaps(true)
	f.Must(tx.Commit(f.Ctx))
	overlaps(false)
}
