package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/testserver"
)

func TestDatabaseFromConfigAndEnvironment(t *testing.T) {
	url := sqliteDatabase(t)
	must(t, "outbox", "create", "orders", "--database-url", url)
	const subscriptions = "\nsubscriptions:\n  - {name: a, outbox: orders, sink: discard}\n"

	t.Setenv("PENSTOCK_DATABASE_URL", url)
	if out := must(t, "outbox", "list"); out != "orders\n" {
		t.Errorf("from the environment: %q", out)
	}
	t.Setenv("PENSTOCK_DATABASE_URL", "")
	write(t, "penstock.yaml", "database_url: "+url+subscriptions)
	if out := must(t, "outbox", "list"); out != "orders\n" {
		t.Errorf("from ./penstock.yaml: %q", out)
	}
	write(t, "penstock.yaml", "database_url: "+url+strings.Replace(subscriptions, "discard", "{rabbitmq: {url: \"${PENSTOCK_TEST_UNSET}\"}}", 1))
	if out := must(t, "outbox", "list"); out != "orders\n" {
		t.Errorf("without the variable of a sink: %q", out)
	}
	if o := invoke(t, "relay"); o.code != terminal.ExitUsage || !strings.Contains(o.stderr, "PENSTOCK_TEST_UNSET, which is not set") {
		t.Errorf("the relay, which needs it: %d %s", o.code, o.stderr)
	}
	write(t, "penstock.yaml", "database_url: "+url+subscriptions)
	write(t, "named.yaml", "database_url: "+url+subscriptions)
	t.Setenv("PENSTOCK_DATABASE_URL", "sqlite:other.db")
	if out := must(t, "outbox", "list", "--config", "named.yaml"); out != "orders\n" {
		t.Errorf("--config before the environment: %q", out)
	}
	if out := must(t, "outbox", "list", "--config", "penstock.yaml", "--database-url", url); out != "orders\n" {
		t.Errorf("--database-url before --config: %q", out)
	}
	invoke(t, "relay", "--config", "named.yaml", "--subscription", "b").wants(t, terminal.ExitUsage, "which has a")
}

// A user who set the variable and forgot the file, or the reverse, must not work on the wrong
// database.
func TestVariableAndFileDisagree(t *testing.T) {
	url := sqliteDatabase(t)
	const rest = "\nsubscriptions:\n  - {name: a, outbox: orders, sink: {rabbitmq: {url: amqp://localhost, password: \"${NOT_SET}\"}}}\n"
	write(t, "penstock.yaml", "database_url: postgres://app:hunter2@db/shop"+rest)
	t.Setenv("PENSTOCK_DATABASE_URL", url)
	for _, verb := range []string{"outbox list", "outbox create orders", "relay", "relay --outbox orders --sink discard", "status", "migrate"} {
		o := invoke(t, strings.Fields(verb)...)
		o.wants(t, terminal.ExitUsage, "PENSTOCK_DATABASE_URL is "+url+", and ./penstock.yaml has postgres://app:xxxxx@db/shop")
		if t.Failed() {
			return // a relay that begins does not end
		}
	}
	must(t, "outbox", "create", "orders", "--database-url", url)

	// The same file by another name, and a file that leaves the URL to the variable.
	file := strings.TrimPrefix(url, "sqlite:")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"database_url: sqlite:" + relative, "database_url: ${PENSTOCK_DATABASE_URL}", "log: {level: info}"} {
		write(t, "penstock.yaml", said+rest)
		if out := must(t, "outbox", "list"); out != "orders\n" {
			t.Errorf("%s: got %q", said, out)
		}
	}
	write(t, "penstock.yaml", "database_url: [")
	if o := invoke(t, "outbox", "list"); o.code != terminal.ExitUsage || !strings.Contains(o.stderr, "penstock.yaml:1:") {
		t.Errorf("exit code %d, stderr %q", o.code, o.stderr)
	}
}

// If the database comes from the file, the schema does as well.
func TestSchemaOfTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	url := testserver.Database(t, testserver.PostgresURL(t))
	must(t, "migrate", "--database-url", url, "--schema", "elsewhere")
	must(t, "outbox", "create", "orders", "--database-url", url, "--schema", "elsewhere")
	write(t, "penstock.yaml", "database_url: \""+url+"\"\nschema: elsewhere\nsubscriptions:\n  - {name: a, outbox: orders, sink: discard}\n")
	t.Setenv("PENSTOCK_DATABASE_URL", url)
	same(t, "with the variable", must(t, "outbox", "list"), "orders\n")
	t.Setenv("PENSTOCK_DATABASE_URL", "")
	same(t, "without", must(t, "outbox", "list"), "orders\n")
	same(t, "with --database-url", must(t, "outbox", "list", "--config", "penstock.yaml", "--database-url", url), "orders\n")
	invoke(t, "outbox", "list", "--schema", "penstock").wants(t, terminal.ExitDatabase, "penstock migrate")
}
