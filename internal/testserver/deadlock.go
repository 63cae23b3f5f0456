package testserver

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// DropInDeadlock calls drop, which is to drop the schema, and has it run into a deadlock: another transaction has the table
// that is dropped last and asks for the first. It is drop's statement that the server ends; the transaction commits then.
func DropInDeadlock(tb testing.TB, url, schema string, drop func() error) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	exec := func(conn *pgx.Conn, sql string) {
		tb.Helper()
		_, err := conn.Exec(ctx, sql)
		must(err)
	}
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, url)
		must(err)
		tb.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	gate, other := connect(), connect()
	// In the order in which they are dropped, that of the dependencies' rows.
	rows, err := gate.Query(ctx, `select c.oid::regclass::text from pg_depend d join pg_class c on c.oid = d.objid
		where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_namespace'::regclass and d.refobjid = (select oid from pg_namespace where nspname = $1) and c.relkind = 'r'
		order by d.ctid`, schema)
	must(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(err)
	if len(tables) < 3 {
		tb.Fatalf("schema %s has the tables %v, too few to hold drop up between two of them", schema, tables)
	}
	first, middle, last := tables[0], tables[1], tables[len(tables)-1]
	awaits := func(table string) {
		tb.Helper()
		for waiting := false; !waiting; time.Sleep(2 * time.Millisecond) {
			must(gate.QueryRow(ctx, "select exists (select from pg_locks where relation = $1::regclass and not granted)", table).Scan(&waiting))
		}
	}

	// Whoever asks last looks for the deadlock for certain: it is drop, which is held up until the other waits.
	exec(gate, "begin; lock table "+middle+" in access share mode")
	exec(other, "set deadlock_timeout = '1h'; begin; lock table "+last+" in access share mode")
	dropped, locked := make(chan error, 1), make(chan error, 1)
	go func() { dropped <- drop() }()
	awaits(middle)
	go func() {
		_, err := other.Exec(ctx, "lock table "+first+" in access share mode")
		locked <- err
	}()
	awaits(first)
	exec(gate, "commit")
	must(<-locked)
	exec(other, "commit")
	return <-dropped
}
