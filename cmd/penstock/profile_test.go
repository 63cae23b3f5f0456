package main

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/testserver"
)

// The portable profile has separate tables in the same database; the flag, or the file, chooses.
func TestPortableProfile(t *testing.T) {
	t.Chdir(t.TempDir())
	url := testserver.Database(t, testserver.PostgresURL(t))
	portable := func(args ...string) string {
		return must(t, append(args, "--database-url", url, "--profile", "portable")...)
	}
	invoke(t, "outbox", "create", "orders", "--database-url", url, "--profile", "portable").wants(t, terminal.ExitDatabase, "--profile portable")
	portable("migrate")
	portable("outbox", "create", "orders")
	portable("publish", "orders", "--key", "k", "--payload", "one")
	contains(t, portable("tail", "orders", "--limit", "1"), "one")
	contains(t, portable("status"), "orders")
	portable("queue", "create", "thumbnails", "--order", "lifo")
	portable("enqueue", "thumbnails", "job")
	contains(t, portable("status"), "thumbnails")
	portable("inbox", "create", "billing")
	contains(t, portable("inbox", "status"), "billing")
	invoke(t, "outbox", "list", "--database-url", url).wants(t, terminal.ExitDatabase, "penstock migrate")
	invoke(t, "outbox", "list", "--database-url", url, "--profile", "odd").wants(t, terminal.ExitUsage, "portable")

	write(t, "penstock.yaml", "database_url: \""+url+"\"\nprofile: portable\nsubscriptions:\n  - {name: a, outbox: orders, sink: discard}\n")
	same(t, "the file's", must(t, "outbox", "list"), "orders\n")
	write(t, "auto.yaml", "database_url: \""+url+"\"\nprofile: auto\nsubscriptions:\n  - {name: a, outbox: orders, sink: discard}\n")
	invoke(t, "outbox", "list", "--config", "auto.yaml").wants(t, terminal.ExitDatabase, "penstock migrate") // PostgreSQL's own
	t.Setenv("PENSTOCK_DATABASE_URL", url)
	same(t, "with the variable", must(t, "outbox", "list"), "orders\n")
	invoke(t, "outbox", "list", "--profile", "postgres").wants(t, terminal.ExitDatabase, "penstock migrate")
}

func TestOutboxCreateDistributed(t *testing.T) {
	t.Parallel()
	create := func(url string, args ...string) outcome {
		return invoke(t, append([]string{"outbox", "create", "orders", "--database-url", url}, args...)...)
	}
	both := []string{"--distribute-by", "tenant", "--colocate-with", "shop_order"}
	for _, one := range [][]string{both[:2], both[2:]} {
		create("sqlite:x.db", one...).wants(t, terminal.ExitUsage, "--distribute-by and --colocate-with go together")
	}
	create("sqlite:x.db", append(both, "--retain-age", "1h")...).wants(t, terminal.ExitUsage, "leave out --retain-age")
	create(sqliteFile(t), both...).wants(t, terminal.ExitUsage, "--profile portable on PostgreSQL with Citus")
	url := testserver.Database(t, testserver.PostgresURL(t))
	create(url, both...).wants(t, terminal.ExitUsage, "--profile portable on PostgreSQL with Citus")
	must(t, "migrate", "--database-url", url, "--profile", "portable")
	create(url, append(both, "--profile", "portable")...).wants(t, terminal.ExitFailure, "the extension citus")
	same(t, "no outbox", must(t, "outbox", "list", "--database-url", url, "--profile", "portable"), "")
}

// On a server that claims to be YugabyteDB, the postgres profile names the one to use instead, auto uses it, and the server gets portable's
// own statements.
func TestProfileOfTheServer(t *testing.T) {
	t.Chdir(t.TempDir())
	url := testserver.Database(t, testserver.PostgresURL(t))
	for _, verb := range [][]string{{"migrate"}, {"outbox", "create", "made"}, {"queue", "create", "jobs"}, {"enqueue", "jobs", "x"}} {
		must(t, append(verb, "--database-url", url, "--profile", "portable")...)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{"create schema shim", "create function shim.version() returns text language sql as $$ select 'PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64'::text $$",
		"alter database " + pgx.Identifier{conn.Config().Database}.Sanitize() + " set search_path = shim, pg_catalog, public"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range [][]string{{"migrate"}, {"outbox", "list"}, {"status"}, {"queue", "create", "mails"}} {
		invoke(t, append(verb, "--database-url", url)...).wants2(t, terminal.ExitFailure, "YugabyteDB", "--profile portable")
	}
	same(t, "auto", must(t, "outbox", "list", "--database-url", url, "--profile", "auto"), "made\n")
	invoke(t, "outbox", "create", "orders", "--database-url", url, "--profile", "auto").wants(t, terminal.ExitFailure, `"hash"`) // its DDL, which PostgreSQL does not read
	write(t, "penstock.yaml", "database_url: \""+url+"\"\nprofile: auto\nsubscriptions:\n  - {name: a, outbox: orders, sink: discard}\n")
	same(t, "auto in the file", must(t, "outbox", "list"), "made\n")
	must(t, "status")
	contains(t, must(t, "explain", "jobs"), "jobs claim: reads the rows that it returns") // EXPLAIN has no DIST and no DEBUG here
}
