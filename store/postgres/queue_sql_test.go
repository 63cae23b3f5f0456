package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestJobRunsOnce(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'one'), penstock.enqueue('q', 'two', headers => '{\"a\":\"b\"}'), penstock.enqueue('q', '{}'::jsonb, group_key => 'g')")
	jobs := f.wantClaim(10, 1, 2)
	f.wantClaim(10)
	f.wantText(fmt.Sprintf("{%d}", jobs[0].lease), "select array(select penstock.ack_many('q', array[$1, 99]::bigint[]))::text", jobs[0].lease)
	f.Exec("select penstock.ack('q', $1)", jobs[1].lease)
	f.wantText("0", "select count(*)::text from penstock._lease")
	if got := f.claimOn(f.Conn, 10, "g"); len(got) != 1 || got[0].id != 3 {
		t.Errorf("of the group g: %v", got)
	}
}

// An attempt that fails leads to another, until they are used up.
func TestJobRetries(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_queue('q', max_attempts => 4)")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.wantText("true", "select penstock.retry('q', $1, error => 'one')::text", f.wantClaim(1, 1)[0].lease)
	if pause := f.Number("select (1000 * extract(epoch from due - (failures->-1->>'at')::timestamptz))::bigint from penstock._scheduled"); pause < 1500 || pause > 2500 {
		t.Errorf("the first pause is %d ms, want 2 s ± 20%%", pause)
	}
	f.Exec("update penstock._scheduled set due = due + interval '1 h'") // however slow this is
	f.maintain()
	f.wantClaim(1) // not due
	f.ripen()
	f.wantText("true", "select penstock.retry('q', $1, '0', 'two')::text", f.wantClaim(1, 1)[0].lease)
	third := f.wantClaim(1, 1)[0]
	if third.attempt != 3 {
		t.Errorf("the third attempt is called %d", third.attempt)
	}
	f.expire()
	f.wantText("false", "select penstock.retry('q', $1, '0', 'four')::text", f.wantClaim(1, 1)[0].lease)
	f.wantClaim(1)
	f.wantText("1:one 2:two 3:lease expired, held by w 4:four", `select string_agg((x->>'attempt') || ':' || (x->>'error'), ' ') from penstock._dead_job, jsonb_array_elements(failures) x`)

	f.wantText("1", "select penstock.retry_dead_jobs('q', '{1, 7}')::text")
	again := f.wantClaim(1, 1)[0]
	if again.attempt != 5 {
		t.Errorf("a dead letter that is retried has attempt %d, want the next one, 5", again.attempt)
	}
	f.Exec("select penstock.dead_letter('q', $1, 'five')", again.lease)
	f.wantText("1", "select penstock.discard_dead_jobs('q', '{1, 7}')::text")
	f.wantText("0", "select count(*)::text from penstock._dead_job")
}

// The last attempt counts, too, if nobody says how it ended; the key goes on.
func TestLastLeaseThatEndsLeavesADeadLetter(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.set_queue('q', max_attempts => 1)")
	f.Exec("select penstock.enqueue_many('q', '{x,y}', keys => '{k,k}')")
	f.wantClaim(2, 1)
	f.wantClaim(2) // the second waits
	f.expire()
	f.wantText("1", "select id::text from penstock._dead_job")
	f.wantClaim(2, 2)
}

func TestJobHistoryKeepsTheLatestTen(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	for i := range 12 {
		f.Exec("select penstock.retry('q', $1, '0', $2)", f.wantClaim(1, 1)[0].lease, fmt.Sprint(i+1))
	}
	f.wantText("3 4 5 6 7 8 9 10 11 12", "select string_agg(x->>'error', ' ') from penstock.q, jsonb_array_elements(failures) x")
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

func TestDelayedJobWaitsForItsTime(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'later', not_before => now() + interval '1 h'), penstock.enqueue('q', 'now', not_before => now())")
	f.maintain()
	f.wantClaim(9, 2)
	f.ripen()
	f.wantClaim(9, 1)
}

func TestDuplicateIsTheFirst(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.wantText("1", "select penstock.enqueue('q', 'x', dedup_key => 'd')::text")
	f.wantText("1", "select penstock.enqueue('q', 'y', dedup_key => 'd')::text")
	f.wantText("{2,1,3,3}", "select array(select penstock.enqueue_many('q', '{a,b,c,d}', dedup_keys => '{e,d,f,f}'))::text")
	f.wantClaim(9, 1, 2, 3)
	f.wantText("1", "select penstock.enqueue('q', 'x', dedup_key => 'd')::text") // it ran, and counts
	f.Exec("update penstock._dedup set at = at - interval '61 min'")
	f.wantText("4", "select penstock.enqueue('q', 'x', dedup_key => 'd')::text")

	// Of two at a time the second waits for the first, and is one if that fails.
	tx, other := f.begin(f.Connect()), f.Connect()
	_, err := tx.Exec(f.Ctx, "select penstock.enqueue('q', 'x', dedup_key => 'race')")
	f.Must(err)
	second := make(chan error, 1)
	go func() {
		_, err := other.Exec(f.Ctx, "select penstock.enqueue('q', 'x', dedup_key => 'race')")
		second <- err
	}()
	f.Eventually("the second waits", func() bool {
		return f.Number("select count(*) from pg_stat_activity where pid = $1 and wait_event = 'advisory'", other.PgConn().PID()) == 1
	})
	f.Must(tx.Commit(f.Ctx))
	f.Must(<-second)
	f.wantText("1", "select count(*)::text from penstock._dedup where dedup_key = 'race'")
}

func TestEnqueueManyInOrder(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.wantText("{1,2,3}", `select array(select penstock.enqueue_many('q', '{a,b,c}', keys => '{k,null,l}', group_keys => '{"","",g}', priorities => '{0,-1,null}',
		headers => array['{"h":"1"}', null, null]::jsonb[]))::text`)
	f.wantText("{4,5}", "select array(select penstock.enqueue_many('q', '{a,b}', not_befores => array[now() + interval '1 h', null]))::text")
	f.wantClaim(9, 2, 1, 5)
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

func TestPausedQueue(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.Exec("select penstock.pause_queue('q')")
	f.wantClaim(1)
	f.wantText("0", "select count(*)::text from penstock.dequeue('q')")
	tx := f.begin(f.Connect()) // a change that is rolled back does not last
	_, err := tx.Exec(f.Ctx, "select penstock.resume_queue('q')")
	f.Must(err)
	f.Must(tx.Rollback(f.Ctx))
	f.maintain()
	f.wantClaim(1)
	f.Exec("select penstock.resume_queue('q')")
	f.wantClaim(1, 1)
}

func TestLimitOfRunningJobs(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c,d,e}')")
	f.Exec("select penstock.set_queue('q', max_running => 3)")
	jobs := f.wantClaim(2, 1, 2)
	tx := f.begin(f.Connect())
	if got := f.claimOn(tx, 9, ""); len(got) != 1 || got[0].id != 3 {
		t.Fatalf("the third: %v", got)
	}
	f.wantClaim(9) // while the third is not committed
	f.Must(tx.Commit(f.Ctx))
	f.wantClaim(9)
	f.Exec("select penstock.ack('q', $1)", jobs[0].lease)
	f.wantClaim(9, 4)
	f.Exec("select penstock.set_queue('q', max_running => 0)")
	f.wantClaim(9, 5)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c,d}', not_befores => array[null, null, null, now() + interval '1 h'], keys => '{k,k,null,null}')")
	running := f.wantClaim(1, 1)[0]
	f.wantText("3", "select penstock.cancel('q', '{1,3,4,77}')::text")
	f.wantText("{}", "select array(select penstock.extend_many('q', array[$1]::bigint[], '1 min'))::text", running.lease)
	f.wantClaim(9, 2)
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.schedule('q', 'nightly', '30 4 * * *', 'report', group_key => '', headers => '{\"x\":\"y\"}')")
	f.maintain()
	f.wantClaim(1)
	f.Exec("update penstock._schedule set next = now() - interval '3 days'")
	f.Exec("select penstock.schedule('q', 'nightly', '30 4 * * *', 'report 2')") // what is due stays due
	f.maintain()
	f.maintain()
	f.wantClaim(9, 1)
	f.wantText("04:30 t", "select to_char(next at time zone 'UTC', 'HH24:MI') || ' ' || (next > now() and next <= now() + interval '1 day')::text::char from penstock._schedule")
	f.Exec("select penstock.unschedule('q', 'nightly')")
	f.wantText("0", "select count(*)::text from penstock._schedule")
}

// Claims that are transactions of their own do the housekeeping.
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

func TestDropQueue(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.create_queue('other')")
	f.Exec("select penstock.enqueue_many('q', '{a,b,c}', not_befores => array[null, null, now() + interval '1 h'], dedup_keys => '{a,b,c}')")
	f.Exec("select penstock.dead_letter('q', $1)", f.wantClaim(1, 1)[0].lease)
	f.wantClaim(1, 2)
	f.Exec("select penstock.schedule('q', 's', '@daily', '')")
	f.Exec("select penstock.drop_queue('q')")
	f.wantText("0 0 0 0 0", `select concat_ws(' ', (select count(*) from penstock._lease), (select count(*) from penstock._scheduled), (select count(*) from penstock._dedup),
		(select count(*) from penstock._dead_job), (select count(*) from penstock._schedule))`)
	f.wantText("0", `select (select count(*) from pg_class where relname like '\_q.%') + (select count(*) from pg_proc where proname like '\_q.%') || ''`)
	f.Exec("select penstock.enqueue('other', 'x')")
	f.Exec("select penstock.create_queue('q')")
	f.Exec("select penstock.enqueue('q', 'x')")
	f.wantClaim(1, 1)
}

// A worker's transaction locks a segment first and the queue's table later; who drops the queue wants both.
func TestDropQueueWaitsForTransactionsOfWorkers(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.enqueue('q', 'x')")
	conn := f.Connect()
	worker, err := conn.Begin(f.Ctx)
	f.Must(err)
	_, err = worker.Exec(f.Ctx, "select penstock.dequeue('q')")
	f.Must(err)
	dropping := f.Connect()
	dropped := make(chan error, 1)
	go func() {
		_, err := dropping.Exec(f.Ctx, "select penstock.drop_queue('q')")
		dropped <- err
	}()
	f.Eventually("the queue is being dropped", func() bool {
		return f.Number("select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", dropping.PgConn().PID()) == 1
	})
	_, err = worker.Exec(f.Ctx, "select penstock.enqueue('q', 'y')")
	f.Must(err)
	f.Must(worker.Commit(f.Ctx))
	f.Must(<-dropped)
	f.wantText("0", "select count(*)::text from pg_class where relname = 'q'")
}
