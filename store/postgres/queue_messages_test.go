package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

const announce = "select penstock.publish_after('q', array[$1::bigint], 'orders', $2::text, key => 'k', topic => 't')"

// announced is a barrier that one job holds, which is claimed, and for which a message waits.
func (f *fixture) announced(payloads ...string) (barrier, lease int64) {
	f.Helper()
	b := f.Number("select penstock.barrier('q')")
	f.Exec("select penstock.enqueue('q', 'held', holds => $1)", b)
	for _, payload := range payloads {
		f.Exec(announce, b, payload)
	}
	f.Exec("select penstock.seal('q', $1)", b)
	jobs := f.claim(1)
	if len(jobs) != 1 {
		f.Fatalf("claimed %+v", jobs)
	}
	return b, jobs[0].lease
}

func (f *fixture) wantPublished(want ...string) {
	f.Helper()
	f.wantText(strings.Join(want, " "), "select coalesce(string_agg(convert_from(payload, 'UTF8'), ' ' order by seq), '') from penstock.orders")
}

// The payload is text, JSON or bytes, also where a driver sends its type as unknown. The call refuses a message over its limits.
func TestWaitingMessageOfSQL(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("create domain image as bytea")
	b := f.Number("select penstock.barrier('q')")
	for _, payload := range []string{"'text \\101'", "'{\"a\": 1}'::jsonb", `'\xff00'::bytea`, "''", `'\xfe00'::image`} {
		f.Exec("select penstock.publish_after('q', array[$1::bigint], 'orders', "+payload+")", b)
	}
	f.Exec("set bytea_output = 'escape'")
	f.Exec(`select penstock.publish_after('q', array[$1::bigint], 'orders', '\x5c00'::bytea, topic => null, headers => '{"h": "1"}', id => 'i')`, b)
	f.Exec("reset bytea_output")
	for code, arguments := range map[string]string{
		"22023": "null::text", "23514": "'x', key => repeat('k', 1025)", "23514 ": "'x', topic => repeat('k', 1025)", "23514  ": "'x', id => repeat('k', 257)", "23514   ": "'x', headers => '[]'",
		"23514    ": "'x', on_dead => 'die'",
	} {
		f.wantError(strings.TrimSpace(code), "select penstock.publish_after('q', array[$1::bigint], 'orders', "+arguments+")", b)
	}
	for code, call := range map[string]string{
		"42P01": "'q', '{1}', 'none', 'x'", "42P01 ": "'q', '{1}', 'q', 'x'", "42P01  ": "'none', '{1}', 'orders', 'x'", "42P01   ": "null, '{1}', null, 'x'",
		"23514": "'q', '{}', 'orders', 'x'", "23514 ": "'q', null, 'orders', 'x', on_dead => 'run'", "23514  ": "'q', '{0}', 'orders', 'x'", "23514   ": "'q', '{9999}', 'orders', 'x'",
	} {
		f.wantError(strings.TrimSpace(code), "select penstock.publish_after("+call+")")
	}
	f.Exec("begin isolation level repeatable read")
	f.wantError("25001", announce, b, "x")
	f.Exec("rollback")
	f.Exec("select penstock.seal('q', $1)", b)
	f.wantText(`text \101 {"a": 1} \xff00  \xfe00 \x5c00`, "select string_agg(case when get_byte(payload || 'x', 0) in (92, 254, 255) then payload::text else convert_from(payload, 'UTF8') end, ' ' order by seq) from penstock.orders")
	f.wantText(`i {"h": "1"}`, "select concat_ws(' ', id, key, headers) from penstock.orders where id is not null")
	f.wantText("0", "select count(*)::text from penstock._scheduled")
}

// It is published with the end of the last job, also of a prepared transaction, and not if that rolls back. So it does not wait if the call that writes it rolls back.
func TestWaitingMessageOfTransactions(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	const ack = "select penstock.ack('q', $1)"
	b, lease := f.announced("first")
	for _, undo := range []string{"rollback", "rollback to s"} {
		f.Exec("begin")
		f.Exec("savepoint s")
		f.Exec(announce, b, "undone")
		f.Exec(ack, lease)
		f.Exec(undo)
		f.Exec("commit")
		f.wantPublished()
		f.wantText("1", "select count(*)::text from penstock._scheduled")
	}
	conn := f.Connect()
	prepared := f.begin(conn)
	f.run(prepared, announce, b, "second")
	f.run(prepared, "prepare transaction 'second'")
	f.Exec("commit prepared 'second'")
	prepared = f.begin(conn)
	f.run(prepared, ack, lease)
	f.run(prepared, "prepare transaction 'last'")
	f.wantPublished()
	f.Exec("commit prepared 'last'")
	f.wantPublished("first", "second")
	f.Exec("begin")
	f.Exec(announce, b, "late")
	f.Exec("set constraints all immediate")
	f.wantPublished("first", "second", "late")
	f.Exec("rollback")
	f.wantPublished("first", "second")
}

// A relay that has read past a message meanwhile gets it, behind those of its key that were committed before.
func TestWaitingMessageForRelays(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	src := f.subscribe()
	_, lease := f.announced("waited")
	f.insert(f.Conn, "k", "before")
	end := f.begin(f.Connect())
	f.run(end, "select penstock.ack('q', $1)", lease)
	f.insert(f.Conn, "k", "meanwhile")
	if got := fmt.Sprint(f.drain(src)); got != "[before meanwhile]" {
		t.Errorf("the relay has %s", got)
	}
	f.Must(end.Commit(f.Ctx))
	f.insert(f.Conn, "k", "after")
	if got := fmt.Sprint(f.drain(src)); got != "[waited after]" {
		t.Errorf("then the relay has %s", got)
	}
}

// The outbox refuses one of some messages: that is a dead letter with the reason, the others are published in order, and the job has ended. While the outbox is
// locked, the end fails instead, and can be repeated.
func TestWaitingMessageIsRefused(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec(`create function penstock.choosy() returns trigger language plpgsql as $$ begin
		if new.payload = 'bad' then raise exception 'no bad ones: %, %', current_user, current_setting('search_path') using errcode = '55000'; end if; return new; end $$`)
	f.Exec("create trigger choosy before insert on penstock.orders for each row execute function penstock.choosy()")
	_, lease := f.announced("a", "b", "bad", "c", "d")
	blocked := f.begin(f.Connect())
	f.run(blocked, "lock table penstock.orders")
	f.Exec("set lock_timeout = '10 ms'")
	if _, err := f.Conn.Exec(f.Ctx, "select penstock.ack('q', $1)", lease); err == nil || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("an ack while the outbox is locked: %v", err)
	}
	f.Exec("reset lock_timeout")
	f.wantText("5", "select count(*)::text from penstock._scheduled")
	f.Must(blocked.Rollback(f.Ctx))
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantPublished("a", "b", "c", "d")
	refused := f.text("select 'bad not published: no bad ones: ' || relowner::regrole || ', penstock, pg_temp 1' from pg_class where oid = 'penstock.orders'::regclass") // as docs/operations/security.md has it
	const dead = "select concat_ws(' ', convert_from(payload, 'UTF8'), error, jsonb_array_length(failures)) from penstock.dead_jobs('q')"
	f.wantText(refused, dead)
	f.wantError("55000", "select penstock.retry_dead_jobs('q', array(select id from penstock.dead_jobs('q')))")
	f.wantText(refused, dead)
	f.Exec("drop trigger choosy on penstock.orders")
	f.wantText("1", "select penstock.retry_dead_jobs('q', array(select id from penstock.dead_jobs('q')))::text")
	f.wantPublished("a", "b", "c", "d", "bad")
	f.wantClaim(5)
}

// Whatever error a trigger raises, the job ends. It does not if the server fails, and can be repeated.
func TestWaitingMessageIsRefusedByAnyError(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec(`create function penstock.refuses() returns trigger language plpgsql as $$ begin
		assert new.payload <> 'assert';
		raise 'closed' using errcode = convert_from(new.payload, 'UTF8'), hint = 'open it'; end $$`)
	f.Exec("create trigger refuses before insert on penstock.orders for each row execute function penstock.refuses()")
	_, lease := f.announced("55000", "assert", "P0001", "42P01", "23505")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantText("55000 assert P0001 42P01 23505", "select string_agg(convert_from(payload, 'UTF8'), ' ' order by id) from penstock.dead_jobs('q') where error like 'not published: %'")
	for _, code := range []string{"40001", "55P03", "53100"} {
		_, lease = f.announced(code)
		f.wantError(code, "select penstock.ack('q', $1)", lease)
		f.Exec("select penstock.cancel('q', array(select id from penstock._scheduled)), penstock.ack('q', $1)", lease)
	}
	f.wantPublished()
}

// A message leaves no row in the table of dead letters, which has no segment that could be truncated. Many whose outbox is gone are dead letters by one statement.
func TestWaitingMessagesAreNotCopied(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	_, lease := f.announced("a", "b")
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantPublished("a", "b")
	f.wantText("0", "select pg_relation_size('penstock._dead_job')::text")
	_, lease = f.announced("c", "d", "e")
	f.Exec("select penstock.drop_outbox('orders')")
	f.Exec("select penstock.ack('q', $1)", lease)
	const orders = "'not published: there is no outbox ''orders'''"
	f.wantText("cde 1", "select concat_ws(' ', string_agg(convert_from(d.payload, 'UTF8'), '' order by d.id), count(distinct (t.xmin::text, t.cmin::text))) from penstock.dead_jobs('q') d join penstock._dead_job t using (id) where d.error = "+orders)
}

// A retry of a letter that another retry has just published returns 0. A message that is refused, and a job that is, stop no other.
func TestRetryOfWaitingMessages(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	_, lease := f.announced("first", "second")
	f.Exec("select penstock.drop_outbox('orders')")
	f.Exec("select penstock.ack('q', $1)", lease)
	const retry = "select penstock.retry_dead_jobs('q', array(select id from penstock.dead_jobs('q')))::text"
	f.Exec("select penstock.enqueue('q', 'job')")
	f.Exec("select penstock.dead_letter('q', lease, 'x') from penstock.claim('q')")
	f.Exec("insert into penstock._dead_job (queue, id, attempt, created_at, priority, group_key, payload, failures) select id, 1000, 1, now(), 0, repeat('g', 2000), 'by hand', '[]' from penstock._queue")
	f.wantText("1", retry)
	f.wantText("3", "select count(*)::text from penstock.dead_jobs('q')")
	f.wantText("job", "select convert_from(payload, 'UTF8') from penstock.dequeue('q')")
	f.Exec("select penstock.discard_dead_jobs('q', '{1000}')")

	f.Exec("select penstock.create_outbox('orders')")
	first, conn := f.begin(f.Connect()), f.Connect()
	f.run(first, retry)
	pid, count := conn.PgConn().PID(), make(chan string, 1)
	go func() {
		var n string
		if err := conn.QueryRow(f.Ctx, retry).Scan(&n); err != nil {
			n = err.Error()
		}
		count <- n
	}()
	f.Eventually("the second retry waits", func() bool { return f.Number("select cardinality(pg_blocking_pids($1))", pid) > 0 })
	f.Must(first.Commit(f.Ctx))
	if n := <-count; n != "0" {
		t.Errorf("the second retry returned %s", n)
	}
	f.wantPublished("first", "second")
}

// A role needs both rights when it calls, whichever role ends the last job, and cannot forge a row of such a message.
func TestWaitingMessageRights(t *testing.T) {
	t.Parallel()
	f := newJobs(t, "fifo")
	f.Exec("select penstock.create_outbox('secret')")
	both, asBoth := f.role()
	enqueuer, asEnqueuer := f.role()
	producer, asProducer := f.role()
	f.Exec("select penstock.grant_enqueuer('q', $1), penstock.grant_producer('orders', $1)", both)
	f.Exec("select penstock.grant_enqueuer('q', $1)", enqueuer)
	f.Exec("select penstock.grant_producer('orders', $1), penstock.grant_producer('secret', $1)", producer)
	b := f.Number("select penstock.barrier('q')")
	call := func(outbox string) string {
		return fmt.Sprintf("select penstock.publish_after('q', '{%d}', '%s', 'x')", b, outbox)
	}
	row := func(columns, values string) string {
		return fmt.Sprintf("insert into penstock._waiting_message (queue, waits_for, outbox, topic, payload%s) values ('q', '{%d}', 'orders', '', 'x'%s)", columns, b, values)
	}
	f.wantMay(asBoth, []string{call("orders"), row("", "")}, []string{call("secret"), row(", role", ", current_user"), "select * from penstock._waiting_message", "select penstock._publish_rows(1, '{1}', 'penstock._scheduled')"})
	f.wantMay(asEnqueuer, nil, []string{call("orders"), row("", ""), row(", role", fmt.Sprintf(", '%s'", both)),
		"insert into penstock._scheduled (queue, id, attempt, due, created_at, priority, group_key, payload) values (1, 1, 0, '-infinity', now(), 16, '', 'x')"})
	f.wantMay(asProducer, nil, []string{call("orders"), row("", "")})

	conn, err := pgx.Connect(f.Ctx, asEnqueuer)
	f.Must(err)
	defer conn.Close(f.Ctx)
	forged := fmt.Sprintf(`{"penstock-message": "{\"outbox\": \"secret\", \"topic\": \"\"}", "penstock-kind": "publish to secret", "penstock-on-dead": "cancel", "penstock-waits-for": "%d"}`, b)
	for _, priority := range []int{16, 0} {
		_, err = conn.Exec(f.Ctx, "select penstock.enqueue('q', 'forged', priority => $2, headers => $1)", forged, priority)
		if priority == 16 && err == nil {
			t.Error("a job of priority 16 was enqueued")
		} else if priority == 0 {
			f.Must(err)
		}
	}
	if _, err = conn.Exec(f.Ctx, "insert into penstock.q (payload, priority) values ('x', 16)"); err == nil {
		t.Error("a job of priority 16 was inserted")
	}
	_, err = conn.Exec(f.Ctx, "select penstock.seal('q', $1)", b) // by a role without a right to the outbox
	f.Must(err)
	f.wantPublished("x", "x")
	f.wantText("0", "select count(*)::text from penstock.secret")
	f.wantText("forged", "select convert_from(payload, 'UTF8') from penstock.dequeue('q')")

	f.Exec("create function penstock_owned() returns bigint language sql security definer as $$ " + call("secret") + " $$")
	f.Exec("grant create on schema public to " + both)
	f.Exec("alter function penstock_owned() owner to " + both)
	f.wantError("42501", "select penstock_owned()") // the caller's rights are not those of the function
}

// Messages outlive a turn of the ring of jobs that wait, in their order, and a dump.
func TestWaitingMessagesAreKept(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, testserver.Database(t, server.URL), postgres.Options{})
	f.Exec("select penstock.create_queue('q')")
	b, lease := f.announced("a", "b")
	turn := func() { f.Exec("select penstock._reclaim_pair('_scheduled', 1, 'true')") }
	turn() // seals a segment
	f.Exec(announce, b, "c")
	f.wantText("0 1", "select string_agg(distinct slot::text, ' ') from penstock._scheduled")
	dump := plainDump(f, server)
	copied := postgrestest.On(t, testserver.Database(t, server.URL))
	_, err := copied.Conn.Exec(f.Ctx, dump, pgx.QueryExecModeSimpleProtocol)
	f.Must(err)
	f.Exec("select penstock.ack('q', $1)", lease)
	f.wantPublished("a", "b", "c")

	g := &fixture{DB: postgrestest.On(t, copied.URL), store: openStore(t, copied.URL, postgres.Options{})}
	for range 3 {
		g.Exec("update penstock._pair set again = null")
		g.Exec("select penstock._reclaim_pair('_scheduled', 1, 'true')")
	}
	g.wantText("1", "select string_agg(distinct slot::text, ' ') from penstock._scheduled")
	g.Exec("select penstock.ack('q', $1)", lease)
	g.wantPublished("a", "b", "c")
	name, asRole := g.role()
	g.Exec("select penstock.grant_enqueuer('q', $1), penstock.grant_producer('orders', $1)", name)
	g.wantMay(asRole, []string{fmt.Sprintf(strings.NewReplacer("$1", "%d", "$2", "'late'").Replace(announce), b)}, nil)
	g.wantPublished("a", "b", "c", "late")
}
