package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/store/postgres"
)

// newAdmitting has an empty queue, jobs, and an empty outbox, messages.
func newAdmitting(t *testing.T) *fixture {
	f := newFixture(t, postgres.Options{})
	f.Exec("select penstock.create_queue('jobs')")
	f.Exec("select penstock.create_outbox('messages', 2)")
	return f
}

// wantRefused runs a statement that must fail with the code, and a hint for who wrote it.
func (f *fixture) wantRefused(code, sql string) {
	f.Helper()
	_, err := f.Conn.Exec(f.Ctx, sql)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != code || pg.Hint == "" {
		f.Errorf("%.120s: got %+v, want %s and a hint", sql, err, code)
	}
}

// Who publishes with a plain INSERT is told what is wrong.
func TestInsertOfABadMessage(t *testing.T) {
	t.Parallel()
	f := newAdmitting(t)
	for _, c := range []struct{ code, columns, values string }{
		{"22023", "payload", "null"},
		{"22023", "payload, topic", "'x', null"},
		{"23514", "payload", "repeat('x', 67108865)::bytea"},
		{"23514", "payload, key", "'x', repeat('ü', 513)"},
		{"23514", "payload, topic", "'x', repeat('t', 1025)"},
		{"23514", "payload, id", "'x', repeat('i', 257)"},
		{"23514", "payload, headers", "'x', '[]'"},
		{"23514", "payload, headers", "'x', 'null'"},
		{"23514", "payload, headers", "'x', jsonb_build_object('a', repeat('h', 65536))"},
		{"23514", "payload, headers", "'x', jsonb_build_object(repeat('h', 65536), 'a')"},
	} {
		f.wantRefused(c.code, "insert into penstock.messages ("+c.columns+") values ("+c.values+")")
	}
	f.wantRefused("22023", "select penstock.publish_bytes('messages', null)")
	f.wantRefused("23514", "select penstock.publish('messages', 'x', headers => jsonb_build_object('a', repeat('h', 65536)))")
	f.wantText("0", "select count(*)::text from penstock.messages")
	f.Exec(`insert into penstock.messages (payload, key, topic, id, headers)
		values ('', repeat('k', 1024), repeat('t', 1024), repeat('i', 256), '{}')`)
}

// The limit on headers is on what they say, as in Go, and not on their JSON.
func TestHeadersJustWithinTheLimit(t *testing.T) {
	t.Parallel()
	f := newAdmitting(t)
	for _, table := range []string{"jobs", "messages"} {
		for _, headers := range []string{
			`jsonb_build_object('a', repeat('h', 65535))`,
			`jsonb_build_object('a', repeat(E'\n', 65535))`, // twice as long in JSON
			`(select jsonb_object_agg(lpad(i::text, 5, '0'), null) from generate_series(1, 13107) i)`,
		} {
			f.Exec("insert into penstock." + table + " (payload, headers) values ('x', " + headers + ")")
		}
		f.wantRefused("23514", `insert into penstock.`+table+` (payload, headers) values ('x', jsonb_build_object('a', repeat(E'\n', 65536)))`)
		f.wantRefused("23514", `insert into penstock.`+table+` (payload, headers)
			select 'x', jsonb_object_agg(lpad(i::text, 5, '0'), null) from generate_series(1, 13108) i`)
	}
	f.Exec("select penstock.enqueue('jobs', 'x', dedup_key => 'once')")
	f.wantRefused("23514", "select penstock.enqueue('jobs', 'x', dedup_key => 'once', headers => '[]')") // though nothing is inserted
}

// No way into a table goes around its trigger.
func TestEveryWayInIsAdmitted(t *testing.T) {
	t.Parallel()
	f := newAdmitting(t)
	for _, table := range []string{"jobs", "messages"} {
		f.Exec("insert into penstock." + table + " (payload) values ('x')")
		f.wantRefused("23514", "update penstock."+table+" set key = repeat('k', 1025)")
		f.wantRefused("23514", `insert into penstock."_`+table+`.1" (slot, payload, key) values (1, 'x', repeat('k', 1025))`)
		_, err := f.Conn.PgConn().CopyFrom(f.Ctx, strings.NewReader("x\t"+strings.Repeat("k", 1025)+"\n"), "copy penstock."+table+" (payload, key) from stdin")
		if err == nil || !strings.Contains(err.Error(), "23514") {
			t.Errorf("COPY into %s: got %v, want 23514", table, err)
		}
		f.Exec("set session_replication_role = replica") // as logical replication's apply has it
		f.wantRefused("23514", "insert into penstock."+table+" (payload, key) values ('x', repeat('k', 1025))")
		f.Exec("reset session_replication_role")
		f.Exec(`create function pg_temp.long_key() returns trigger language plpgsql as 'begin new.key := repeat(''k'', 1025); return new; end'`)
		f.Exec("create trigger tenant before insert on penstock." + table + " for each row execute function pg_temp.long_key()")
		f.wantRefused("23514", "insert into penstock."+table+" (payload) values ('x')") // after the user's own trigger
		f.Exec("drop function pg_temp.long_key() cascade")
		f.wantText("1", "select count(*)::text from penstock."+table)
	}
	f.Exec("select penstock.drop_queue('jobs'), penstock.drop_outbox('messages'), penstock.drop_outbox('orders')")
	f.wantText("0", "select count(*)::text from pg_trigger where tgname = 'zz_validate'")
}
