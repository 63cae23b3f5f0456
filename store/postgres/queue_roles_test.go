package postgres_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// wantDenied runs statements that a role has no right to.
func (f *fixture) wantDenied(conn *pgx.Conn, statements ...string) {
	f.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(f.Ctx, sql); err == nil || !strings.Contains(err.Error(), "42501") {
			f.Errorf("%s: got %v, want permission denied", sql, err)
		}
	}
}

func (f *fixture) connectAs(url string) *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.Ctx, url)
	f.Must(err)
	f.Cleanup(func() { _ = conn.Close(f.Ctx) })
	return conn
}

// A role that was granted nothing is refused the whole schema. Each call names the right that it needs.
func TestStoreOfARoleWithoutRights(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	_, asRole := f.role()
	store := openStore(t, asRole, postgres.Options{})
	queue := store.Queue("jobs")
	for call, c := range map[string]struct {
		err  func() error
		want string
	}{
		"Enqueue":  {func() error { _, err := queue.Enqueue(f.Ctx, texts("one")...); return err }, "penstock queue grant jobs ROLE --enqueue"},
		"Barrier":  {func() error { _, err := queue.Barrier(f.Ctx); return err }, "penstock queue grant jobs ROLE --enqueue"},
		"Claim":    {func() error { _, err := queue.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute}); return err }, "penstock queue grant jobs ROLE --work"},
		"Maintain": {func() error { return queue.Maintain(f.Ctx) }, "penstock queue grant jobs ROLE --work"},
		"Subscribe": {func() error {
			_, err := store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "o", Subscription: "s", Holder: "h", Lease: time.Minute})
			return err
		}, "penstock outbox grant ROLE --relay"},
		"SetSchedule": {func() error {
			return store.SetSchedule(f.Ctx, penstock.Schedule{Queue: "jobs", Name: "s", Cron: "@daily"})
		}, "only the owner of the schema may do this"},
	} {
		if err := c.err(); err == nil || !strings.Contains(err.Error(), "42501") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want the next step %q", call, err, c.want)
		}
	}
}

func TestStoreOfAnEnqueuer(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.CreateQueue(f.Ctx, "secret", penstock.FIFO))
	name, asRole := f.role()
	f.Exec("select penstock.grant_enqueuer('jobs', $1)", name)
	store, conn := openStore(t, asRole, postgres.Options{}), f.connectAs(asRole)
	queue := store.Queue("jobs")

	later := penstock.NewJob{NotBefore: time.Now().Add(time.Hour), Priority: 3}
	keyed := penstock.NewJob{Key: "k", DedupKey: "d", Group: "", Payload: []byte("one")}
	for _, jobs := range [][]penstock.NewJob{{keyed}, {later}, {later, keyed}, texts("two", "three")} {
		_, err := queue.Enqueue(f.Ctx, jobs...)
		f.Must(err)
	}
	for _, allowed := range []string{
		"insert into penstock.jobs (payload, key, group_key, priority, headers) values ('four', 'l', '', 1, '{\"a\":\"b\"}')",
		"select penstock.enqueue('jobs', 'five')",
	} {
		if _, err := conn.Exec(f.Ctx, allowed); err != nil {
			t.Errorf("%s: %v", allowed, err)
		}
	}
	f.wantDenied(conn,
		"select * from penstock.jobs", "delete from penstock.jobs", "update penstock.jobs set payload = ''", "truncate penstock.jobs",
		"insert into penstock.jobs (seq, payload) values (1, 'x')", "insert into penstock.jobs (xid, payload) values ('3', 'x')",
		"insert into penstock.jobs (attempt, payload) values (9, 'x')",
		"insert into penstock.secret (payload) values ('x')", "select penstock.enqueue('secret', 'x')", "select penstock.ready_groups('jobs')",
		"select penstock.dequeue('jobs')", "select penstock.claim('jobs')", "select penstock.cancel('jobs', '{1}')",
		`select * from penstock."_jobs.take"(1, '')`, `select * from penstock."_jobs.claim"(1, '1 s', '', '')`,
		"select penstock.drop_queue('jobs')", "select penstock.pause_queue('jobs')", "select penstock.set_queue('jobs', 3)",
		"select penstock.schedule('jobs', 's', '@daily', 'x')", "select penstock.grant_enqueuer('secret', current_user)",
		`select setval('penstock."_jobs.flags"', 1)`, `select setval('penstock."_jobs.ring"', 1)`, `select setval('penstock."_jobs.seq"', 1)`,
		"select * from penstock._lease", "select * from penstock._dead_job")
	if _, err := queue.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute}); err == nil || !strings.Contains(err.Error(), "queue grant jobs ROLE --work") {
		t.Errorf("Claim by an enqueuer: got %v, want an error that names the grant", err)
	}
	f.Must(f.queue.Maintain(f.Ctx))
	jobs, err := f.queue.Claim(f.Ctx, driver.Claim{Jobs: 10, Lease: time.Minute})
	f.Must(err)
	if len(jobs) != 5 {
		t.Errorf("got %q, want the five that are due, without the duplicate", payloads(jobs))
	}
}

func TestStoreOfAWorker(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.CreateQueue(f.Ctx, "secret", penstock.FIFO))
	_, err := f.store.Queue("secret").Enqueue(f.Ctx, penstock.NewJob{})
	f.Must(err)
	name, asRole := f.role()
	f.Exec("select penstock.grant_worker('jobs', $1)", name)
	store, conn := openStore(t, asRole, postgres.Options{}), f.connectAs(asRole)
	queue := store.Queue("jobs")

	f.enqueue(texts("done", "retried", "buried", "dequeued")...)
	f.enqueue(penstock.NewJob{Key: "k"}, penstock.NewJob{Key: "k"}, penstock.NewJob{NotBefore: time.Now().Add(time.Hour)})
	claim := func(n int) []penstock.Job {
		t.Helper()
		jobs, err := queue.Claim(f.Ctx, driver.Claim{Jobs: n, Lease: time.Minute, Worker: "me"})
		f.Must(err)
		if len(jobs) != n {
			t.Fatalf("%d jobs claimed, want %d", len(jobs), n)
		}
		return jobs
	}
	groups, err := queue.ReadyGroups(f.Ctx, nil, "", 10)
	f.Must(err)
	if len(groups) != 1 || groups[0] != "" {
		t.Errorf("the ready groups are %q, want the one without a name", groups)
	}
	var named []string
	f.Must(conn.QueryRow(f.Ctx, "select array(select penstock.ready_groups('jobs', group_keys => '{x,\"\"}'))").Scan(&named))
	if len(named) != 1 || named[0] != "" {
		t.Errorf("by SQL the ready groups are %q, want the one without a name", named)
	}
	jobs := claim(3)
	held, err := queue.Extend(f.Ctx, time.Minute, jobs[0].Lease, jobs[1].Lease)
	f.Must(err)
	if len(held) != 2 {
		t.Errorf("%d leases extended, want 2", len(held))
	}
	held, err = queue.Ack(f.Ctx, jobs[0].Lease)
	f.Must(err)
	if len(held) != 1 {
		t.Errorf("%d leases ended, want 1", len(held))
	}
	if dead, err := queue.Retry(f.Ctx, jobs[1].Lease, time.Hour, "a\x00\xffb"); dead || err != nil {
		t.Errorf("Retry: got %v and %v, want another attempt", dead, err)
	}
	f.Must(queue.DeadLetter(f.Ctx, jobs[2].Lease, "no"))
	dequeued, err := f.store.Queue("jobs").Dequeue(f.Ctx, asTx(conn), 1, "")
	f.Must(err)
	if len(dequeued) != 1 {
		t.Errorf("%d jobs dequeued, want 1", len(dequeued))
	}
	for range 2 { // one of the key after the other
		_, err = queue.Ack(f.Ctx, claim(1)[0].Lease)
		f.Must(err)
		f.Must(queue.Maintain(f.Ctx))
	}
	f.wantDenied(conn,
		"select * from penstock.jobs", "delete from penstock.jobs", "insert into penstock.jobs (payload) values ('x')",
		"select penstock.enqueue('jobs', 'x')", "select penstock.claim('secret')", "select penstock.dequeue('secret')",
		`select * from penstock."_secret.take"(1, '')`, "select penstock.ack_many('secret', '{1}')", "select penstock.maintain_queue('secret')",
		`select * from penstock."_secret.ready"(null, '', 10)`, "select penstock.ready_groups('secret')", "select penstock.queue_groups('jobs')",
		"select * from penstock._lease", "delete from penstock._lease", "delete from penstock._dead_job",
		"select penstock.discard_dead_jobs('jobs', '{1}')", "select penstock.dead_jobs('jobs')", "select penstock.drop_queue('jobs')", "select penstock.pause_queue('jobs')",
		`select setval('penstock."_jobs.maintained"', 1)`, "select penstock.grant_worker('secret', current_user)")
}

func TestStoreOfAnOperator(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	f.Must(f.store.CreateQueue(f.Ctx, "secret", penstock.FIFO))
	deadLetter := func(q driver.Queue) {
		t.Helper()
		_, err := q.Enqueue(f.Ctx, texts("waits", "dies", "dies too")...)
		f.Must(err)
		jobs, err := q.Claim(f.Ctx, driver.Claim{Jobs: 3, Lease: time.Minute})
		f.Must(err)
		f.Must(q.DeadLetter(f.Ctx, jobs[1].Lease, "no"))
		f.Must(q.DeadLetter(f.Ctx, jobs[2].Lease, "no"))
	}
	deadLetter(f.queue)
	deadLetter(f.store.Queue("secret"))
	name, asRole := f.role()
	f.Must(f.store.GrantOperator(f.Ctx, "jobs", name))
	store, conn := openStore(t, asRole, postgres.Options{}), f.connectAs(asRole)

	all, err := store.QueueStatus(f.Ctx)
	f.Must(err)
	if len(all) != 1 || all[0].Queue != "jobs" || all[0].Running != 1 || all[0].DeadLetters != 2 || all[0].Bytes == 0 {
		t.Errorf("the status is %+v, want that of jobs alone, with 1 running and 2 dead letters", all)
	}
	groups, err := store.QueueGroups(f.Ctx, "jobs", "", 10)
	f.Must(err)
	if len(groups) != 1 || groups[0].Running != 1 || groups[0].DeadLetters != 2 {
		t.Errorf("the groups are %+v, want one with 1 running and 2 dead letters", groups)
	}
	dead, err := store.DeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "jobs"})
	f.Must(err)
	if len(dead) != 2 || string(dead[0].Job.Payload) != "dies" || dead[0].Err() != "no" {
		t.Errorf("the dead letters are %+v, want two", dead)
	}
	if dead, err := store.DeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "secret"}); err == nil || !strings.Contains(err.Error(), "penstock queue grant secret ROLE --operate") {
		t.Errorf("of another queue: %d dead letters and error %v, want the right that is missing", len(dead), err)
	}
	count := func(want int) func(n int, err error) {
		return func(n int, err error) {
			t.Helper()
			if err != nil || n != want {
				t.Errorf("got %d and error %v, want %d", n, err, want)
			}
		}
	}
	count(1)(store.RetryDeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "jobs", Limit: 1}))
	count(1)(store.DiscardDeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "jobs"}))
	paused := true
	f.Must(store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{Paused: &paused}))
	if jobs, err := f.queue.Claim(f.Ctx, driver.Claim{Jobs: 1, Lease: time.Minute}); err != nil || len(jobs) != 0 {
		t.Errorf("of a paused queue: %d jobs and error %v", len(jobs), err)
	}
	paused = false
	f.Must(store.SetQueue(f.Ctx, "jobs", penstock.QueueSettings{Paused: &paused}))
	count(2)(store.CancelJobs(f.Ctx, "jobs", 1, 2, 3))
	for _, call := range []string{"queue_status('jobs')", "dead_jobs('jobs')"} {
		if _, err := conn.Exec(f.Ctx, "select penstock."+call); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
	f.wantDenied(conn,
		"select * from penstock.jobs", "select * from penstock._lease", "select * from penstock._scheduled",
		"delete from penstock._dead_job", "update penstock._dead_job set attempt = 0", "update penstock._queue set paused = true",
		"select penstock.enqueue('jobs', 'x')", "select penstock.claim('jobs')", "select penstock.dequeue('jobs')",
		"select penstock.ack_many('jobs', '{1}')", "select penstock.set_queue('jobs', 3)", "select penstock.drop_queue('jobs')",
		"select penstock.schedule('jobs', 's', '@daily', 'x')", "select penstock.pause_schedule('jobs', 's')", "select penstock.resume_schedule('jobs', 's')",
		"select penstock.run_schedule('jobs', 's')", "select penstock.schedules('jobs')",
		`select * from penstock."_jobs.claim"(1, '1 s', '', '')`, `select * from penstock."_jobs.ack"('{1}')`, `select penstock."_jobs.fail"(1, null, '', true)`,
		"select penstock.pause_queue('secret')", "select penstock.resume_queue('secret')", "select penstock.cancel('secret', '{1}')",
		"select penstock.retry_dead_jobs('secret', '{2}')", "select penstock.discard_dead_jobs('secret', '{2}')", "select penstock.dead_jobs('secret')", "select penstock.queue_status('secret')", "select penstock.queue_groups('secret')",
		"select penstock.grant_operator('secret', current_user)")
	dead, err = f.store.DeadJobs(f.Ctx, admin.DeadJobQuery{Queue: "secret"})
	f.Must(err)
	if len(dead) != 2 {
		t.Errorf("the other queue has %d dead letters left, want 2", len(dead))
	}
}

// An error names a right that helps, for each function and sequence of a queue that a right opens.
func TestErrorsNameTheRightOfEachFunction(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	enqueuer, _ := f.role()
	worker, _ := f.role()
	operator, _ := f.role()
	f.Exec("select penstock.grant_enqueuer('jobs', $1), penstock.grant_worker('jobs', $2), penstock.grant_operator('jobs', $3)", enqueuer, worker, operator)
	rows, err := f.Conn.Query(f.Ctx, `select own, array(select r from unnest(array['enqueue', 'work', 'operate'], array[$1, $2, $3]::name[]) g (r, role)
			where case kind when 'f' then has_function_privilege(role, oid, 'execute') else has_sequence_privilege(role, oid, 'usage, select') end)
		from (select 'f' as kind, oid, proname as own from pg_proc where pronamespace = 'penstock'::regnamespace and not has_function_privilege('public', oid, 'execute')
			union all select 'S', oid, relname from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'S') o
		where own like '\_jobs.%' or own = 'dequeue_jobs'`, enqueuer, worker, operator)
	f.Must(err)
	type own struct {
		Name   string
		Rights []string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[own])
	f.Must(err)
	opened := 0
	for _, o := range all {
		if len(o.Rights) == 0 { // the owner's alone
			continue
		}
		opened++
		hint := postgres.GrantHint(&pgconn.PgError{Code: "42501", Message: "permission denied for function " + o.Name})
		if !slices.ContainsFunc(o.Rights, func(right string) bool { return strings.HasSuffix(hint, "penstock queue grant jobs ROLE --"+right) }) {
			t.Errorf("%s, which needs one of %v: got the hint %q", o.Name, o.Rights, hint)
		}
	}
	if opened < 25 {
		t.Errorf("looked at %d functions and sequences", opened)
	}
}
