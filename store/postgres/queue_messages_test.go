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
	b := f.Number("select penstock.barrier('q')")
	for _, payload := range []string{"'text \\101'", "'{\"a\": 1}'::jsonb", `'\xff00'::bytea`, "''"} {
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
	f.wantText(`text \101 {"a": 1} \xff00  \x5c00`, "select string_agg(case when get_byte(payload || 'x', 0) in (92, 255) then payload::text else convert_from(payload, 'UTF8') end, ' ' order by seq) from penstock.orders")
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
	f.wantMay(asBoth, []string{call("orders"), row("", "")}, []string{call("secret"), row(", role", ", current_user"), "select * from penstock._waiting_message", "select penstock._publish_letters(1, '{1}')"})
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
