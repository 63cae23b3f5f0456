package testserver

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Deadlock makes call, which must lock the three tables in this order, exclusively, run into a deadlock: another transaction has
// the last one and asks for the first. The server ends call's statement, and the transaction then commits.
func Deadlock(tb testing.TB, url, first, middle, last string, call func() error) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	connect := func(sql string) *pgx.Conn {
		tb.Helper()
		conn, err := pgx.Connect(ctx, url)
		must(err)
		tb.Cleanup(func() { _ = conn.Close(context.Background()) })
		_, err = conn.Exec(ctx, sql)
		must(err)
		return conn
	}
	// The caller that begins to wait last finds the deadlock for certain: that is call, which is held up until the other waits.
	gate := connect("begin; lock table " + middle + " in access share mode")
	other := connect("set deadlock_timeout = '1h'; begin; lock table " + last + " in access share mode")
	awaits := func(table string) {
		tb.Helper()
		for waiting := false; !waiting; time.Sleep(2 * time.Millisecond) {
			must(gate.QueryRow(ctx, "select exists (select from pg_locks where relation = $1::regclass and not granted)", table).Scan(&waiting))
		}
	}
	called, committed := make(chan error, 1), make(chan error, 1)
	go func() { called <- call() }()
	awaits(middle)
	go func() {
		_, err := other.Exec(ctx, "lock table "+first+" in access share mode; commit")
		committed <- err
	}()
	awaits(first)
	must(gate.Close(ctx))
	must(<-committed)
	return <-called
}

// DropInDeadlock is Deadlock for what drops a schema, of three tables at least.
func DropInDeadlock(tb testing.TB, url, schema string, drop func() error) error {
	tb.Helper()
	var tables []string // in the order in which they are dropped, that of the dependencies' rows
	err := session(url, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `select c.oid::regclass::text from pg_depend d join pg_class c on c.oid = d.objid join pg_namespace n on n.oid = d.refobjid
			where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_namespace'::regclass and n.nspname = $1 and c.relkind = 'r' order by d.ctid`, schema)
		if err == nil {
			tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil || len(tables) < 3 {
		tb.Fatalf("schema %s has the tables %v, %v", schema, tables, err)
	}
	return Deadlock(tb, url, tables[0], tables[1], tables[len(tables)-1], drop)
}
