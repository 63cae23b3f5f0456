package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/testserver"
)

// outboxMessages is the .NET table as its authors made it, with waiting rows.
const outboxMessages = `create table outbox_messages (
		id uuid primary key default gen_random_uuid(), type text not null, content jsonb not null,
		occurred_on_utc timestamptz not null default clock_timestamp(), processed_on_utc timestamptz, error text);
	insert into outbox_messages (type, content) select 'OrderPlaced', jsonb_build_object('n', n) from generate_series(1, 20000) n;
	analyze outbox_messages`

// execute runs SQL in a test's database.
func execute(t *testing.T, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestAdoptCheck(t *testing.T) {
	t.Parallel()
	database := testserver.Database(t, testserver.PostgresURL(t))
	execute(t, database, outboxMessages)
	d := &desk{t: t}
	checks := func(args ...string) []string {
		return append([]string{"adopt", "check", "--preset", "dotnet", "--database-url", database}, args...)
	}

	o := d.cli(checks()...)
	contains(t, o.stdout, "public.outbox_messages on PostgreSQL", "[missing-index]", "create index concurrently")
	o.wants(t, terminal.ExitCheck, "public.outbox_messages has 1 finding to act on: the report has the statements to run; --fix creates")
	d.cli(checks("--fix")...).wants(t, terminal.ExitUsage, "nothing was changed: there is no terminal to ask on, pass --yes")
	d.cli(checks("--yes")...).wants(t, terminal.ExitUsage, "--yes goes with --fix")

	o = d.asked("n\n", checks("--fix")...)
	contains(t, o.stdout, "_idx: declined")
	contains(t, o.stderr, "create index concurrently", "Run it? [y/N] ")
	if o.code != terminal.ExitCheck {
		t.Errorf("exit code %d", o.code)
	}
	o = d.asked("y\n", checks("--fix")...)
	contains(t, o.stdout, "_idx: created in ", "Left now: 0 critical, 0 warnings")
	if o.code != terminal.ExitOK {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}

	file := yaml(t, "database_url: "+database+`
subscriptions:
  - {name: mails, adopt: dotnet, sink: discard}
  - {name: orders, outbox: orders, sink: discard}
`)
	var report struct {
		Table    struct{ Name string }
		Findings []struct{ Code, Severity string }
		Fixed    []struct{ Outcome string }
	}
	o = d.cli("adopt", "check", "--json", "--config", file, "--subscription", "mails")
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || o.code != terminal.ExitOK || report.Table.Name != "outbox_messages" || strings.Contains(o.stdout, "missing-index") {
		t.Errorf("%+v, %v, exit code %d: %s", report, err, o.code, o.stderr)
	}
	d.cli("adopt", "check", "--config", file, "--subscription", "orders").wants(t, terminal.ExitUsage, `--subscription "orders" adopts no table in the configuration; those that do are mails`)
	d.cli("adopt", "check", "--subscription", "mails", "--preset", "dotnet", "--config", file).wants(t, terminal.ExitUsage, "given with --preset or --table")
	d.cli(checks("--table", "nothing.outbox_messages")...).wants(t, terminal.ExitFailure, `there is no table "nothing"."outbox_messages"`)
	d.cli("adopt", "check", "--table", "t", "--database-url", database).wants(t, terminal.ExitUsage, "--table is given without --preset")
	d.cli("adopt", "check", "--preset", "java", "--database-url", database).wants(t, terminal.ExitUsage, `preset is "java": choose one of debezium`)
	d.cli("adopt", "check", "--preset", "dotnet", "--database-url", "sqlite:x.db").wants(t, terminal.ExitUsage, "tables are checked in PostgreSQL")
	d.cli("adopt", "check", "--preset", "dotnet", "--database-url", "postgres://app:hunter2@127.0.0.1:1/x").wants(t, terminal.ExitDatabase, "check that the server is up")
}
