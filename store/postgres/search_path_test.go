package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// hostile is a schema with twins of everything that PostgreSQL's own operators and functions
// offer on the types that a queue has. Each says that it was called.
const hostile = `
create schema hostile;
create function hostile.trap() returns void language plpgsql as $$ begin raise exception 'hijacked'; end $$;
do $$
declare
    o record;
    f record;
begin
    for o in select oprname, oprleft::regtype l, oprright::regtype r, oprresult::regtype as result, row_number() over () n from pg_operator
              where oprnamespace = 'pg_catalog'::regnamespace and oprname in ('=', '<', '>', '<=', '>=', '<>', '+', '-', '*', '%')
                and oprleft::regtype::text in ('smallint', 'integer', 'bigint', 'double precision', 'numeric', 'text', 'xid', 'bytea')
                and oprright::regtype::text in ('smallint', 'integer', 'bigint', 'double precision', 'numeric', 'text', 'xid', 'bytea') loop
        execute format('create function hostile.op_%s(%s, %s) returns %s language plpgsql as ''begin perform hostile.trap(); end''', o.n, o.l, o.r, o.result);
        execute format('create operator hostile.%s (leftarg = %s, rightarg = %s, function = hostile.op_%s)', o.oprname, o.l, o.r, o.n);
    end loop;
    for f in select proname, pg_get_function_identity_arguments(oid) args, pg_get_function_result(oid) as result from pg_proc
              where pronamespace = 'pg_catalog'::regnamespace and prokind = 'f'
                and proname in ('pg_sequence_last_value', 'nextval', 'setval', 'clock_timestamp', 'date_part', 'current_setting', 'octet_length', 'jsonb_typeof') loop
        execute format('create function hostile.%I(%s) returns %s language plpgsql as ''begin perform hostile.trap(); end''', f.proname, f.args, f.result);
    end loop;
end $$;
grant usage on schema hostile to public;`

// A worker may choose the search_path, and what runs with the owner's rights must not follow
// it to the worker's own operators and functions.
func TestOwnersRightsOnAnySearchPath(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.Exec(hostile, pgx.QueryExecModeSimpleProtocol)
	name, asRole := f.role()
	ctx := context.Background()
	for _, queue := range []string{"fifo", "lifo"} {
		f.Exec("select penstock.grant_worker($1, $2)", queue, name)
		conn, err := pgx.Connect(ctx, asRole)
		f.Must(err)
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "set search_path = hostile, pg_catalog")
		f.Must(err)
		if _, err = conn.Exec(ctx, "select 1 + 1"); err == nil || !strings.Contains(err.Error(), "hijacked") {
			t.Fatalf("1 + 1 on this search_path: got %v, want the schema's own operator", err)
		}
		const jobs = 400
		f.enqueue(f.Conn, queue, 1, jobs)
		for i := range jobs {
			if i%20 == 0 {
				f.later(queue) // and so the skip maps are looked at, maintenance is due, and few jobs wait at the end
				f.Exec(fmt.Sprintf(`select setval('penstock."_%s.maintained"', 0)`, queue))
			}
			var id int64
			if err := conn.QueryRow(ctx, "select id from penstock.dequeue_"+queue+"()").Scan(&id); err != nil {
				t.Fatalf("%s, job %d: %v", queue, i, err)
			}
		}
	}
}

// The columns of a row must not depend on its writer's search_path either, however it is written.
func TestInsertOnAnySearchPath(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.Exec(hostile, pgx.QueryExecModeSimpleProtocol)
	name, asRole := f.role()
	f.Exec("select penstock.grant_enqueuer('fifo', $1), penstock.grant_producer('orders', $1)", name)
	conn, err := pgx.Connect(f.Ctx, asRole)
	f.Must(err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(f.Ctx, "set search_path = hostile, pg_catalog")
	f.Must(err)
	for _, arguments := range []string{"'x', 'k', 'g', 3, null, null, null", "'x', null, null, null, null, null, null",
		"'x', null, null, 15, null, 'once', null", "'x', null, null, null, '2100-01-01', null, null"} {
		if _, err := conn.Exec(f.Ctx, `select penstock."_fifo.enqueue"(`+arguments+")"); err != nil {
			t.Errorf("enqueue(%s): %v", arguments, err)
		}
	}
	for table, columns := range map[string]string{"fifo": "group_key", "orders": "topic"} {
		for _, values := range []string{"null, 't', null, 'x'", "'k', 't', null, 'x'", `'k', 't', '{"a":"b"}', 'x'`} {
			if _, err := conn.Exec(f.Ctx, "insert into penstock."+table+" (key, "+columns+", headers, payload) values ("+values+")"); err != nil {
				t.Errorf("%s, (%s): %v", table, values, err)
			}
		}
		for _, values := range []string{"repeat('k', 1025), 't', null, 'x'", "null, repeat('t', 1025), null, 'x'", "'k', 't', '[]', 'x'",
			"'k', 't', jsonb_build_object('a', repeat('h', 65536)), 'x'"} {
			if _, err := conn.Exec(f.Ctx, "insert into penstock."+table+" (key, "+columns+", headers, payload) values ("+values+")"); err == nil || !strings.Contains(err.Error(), "23514") {
				t.Errorf("%s, (%s): got %v, want 23514", table, values, err)
			}
		}
	}
}

// Whatever has its owner's rights and is not seen to above says itself where its names are.
func TestOwnersRightsHaveASearchPath(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t)
	f.wantText("", `select coalesce(string_agg(p.proname, ', '), '') from pg_proc p
		where p.pronamespace = 'penstock'::regnamespace and p.prosecdef and p.proname not in ('dequeue_fifo', 'dequeue_lifo', '_fifo.enqueue', '_lifo.enqueue')
		  and not exists (select from unnest(p.proconfig) c where c like 'search_path=%')`)
}
