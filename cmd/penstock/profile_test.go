package main

import (
	"testing"

	"github.com/penstock/penstock/internal/cli"
	"github.com/penstock/penstock/internal/cli/clitest"
	"github.com/penstock/penstock/internal/testserver"
)

// The portable profile has tables of its own in the same database; the flag, or the file, says which are meant.
func TestPortableProfile(t *testing.T) {
	t.Chdir(t.TempDir())
	url := testserver.Database(t, testserver.PostgresURL(t))
	portable := func(args ...string) string {
		return must(t, append(args, "--database-url", url, "--profile", "portable")...)
	}
	invoke(t, "outbox", "create", "orders", "--database-url", url, "--profile", "portable").wants(t, cli.ExitDatabase, "--profile portable")
	portable("migrate")
	portable("outbox", "create", "orders")
	portable("publish", "orders", "--key", "k", "--payload", "one")
	clitest.Contains(t, portable("tail", "orders", "--limit", "1"), "one")
	clitest.Contains(t, portable("status"), "orders")
	portable("queue", "create", "thumbnails", "--order", "lifo")
	portable("enqueue", "thumbnails", "job")
	clitest.Contains(t, portable("status"), "thumbnails")
	portable("inbox", "create", "billing")
	clitest.Contains(t, portable("inbox", "status"), "billing")
	invoke(t, "bench", "fifo-lifo", "--database-url", url, "--profile", "portable").wants(t, cli.ExitUsage, "not the portable profile")
	invoke(t, "outbox", "list", "--database-url", url).wants(t, cli.ExitDatabase, "penstock migrate")
	invoke(t, "outbox", "list", "--database-url", url, "--profile", "odd").wants(t, cli.ExitUsage, "portable")

	clitest.Write(t, "penstock.yaml", "database_url: \""+url+"\"\nprofile: portable\nsubscriptions:\n  - {name: a, outbox: orders, sink: discard}\n")
	clitest.Same(t, "the file's", must(t, "outbox", "list"), "orders\n")
	t.Setenv("PENSTOCK_DATABASE_URL", url)
	clitest.Same(t, "with the variable", must(t, "outbox", "list"), "orders\n")
	invoke(t, "outbox", "list", "--profile", "postgres").wants(t, cli.ExitDatabase, "penstock migrate")
}
