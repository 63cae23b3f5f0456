package testserver

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// HoldUpdates has transactions that update these tables wait at once after that: from a call of hold until one of open. waits: one does.
func HoldUpdates(tb testing.TB, url string, tables ...string) (waits func() bool, hold func() (open func())) {
	tb.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(ctx) })
	exec := func(sql string) {
		tb.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`create function public.held() returns trigger language plpgsql as $$ begin perform pg_catalog.pg_advisory_xact_lock_shared(4711, 1); return null; end $$`)
	for _, table := range tables {
		exec(fmt.Sprintf("create trigger held after update on %s for each statement execute function public.held()", table))
	}
	waits = func() (is bool) {
		tb.Helper()
		err := conn.QueryRow(ctx, `select exists (select from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
			where l.locktype = 'advisory' and l.classid = 4711 and not l.granted)`).Scan(&is)
		if err != nil {
			tb.Fatal(err)
		}
		return is
	}
	return waits, func() func() {
		exec("select pg_catalog.pg_advisory_lock(4711, 1)")
		return func() { exec("select pg_catalog.pg_advisory_unlock(4711, 1)") }
	}
}
