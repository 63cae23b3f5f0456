package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// settleRows gives each waiting row of the .NET table the verdict for its type.
func settleRows(t *testing.T, database, subscription string, verdict func(penstock.Message) driver.Verdict) {
	t.Helper()
	settleRowsOf(t, database, adopt.Config{Preset: "dotnet"}, subscription, verdict)
}

// settleRowsOf does the same with the rows of a table.
func settleRowsOf(t *testing.T, database string, of adopt.Config, subscription string, verdict func(penstock.Message) driver.Verdict) {
	t.Helper()
	table, err := adopt.Open(t.Context(), adopt.Options{URL: database, Subscription: subscription, Config: of})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	source, err := table.Subscribe(t.Context(), driver.Subscribe{Subscription: subscription, Holder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close(t.Context())
	batch, err := source.Fetch(t.Context(), driver.Limit{Messages: 100, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	settled := driver.Settled{Batch: batch}
	for i := range batch.Messages {
		settled.Verdicts = append(settled.Verdicts, verdict(batch.Messages[i]))
	}
	if err := storetest.Settle(t.Context(), source, settled); err != nil {
		t.Fatal(err)
	}
}

// Views and actions of operators for an adopted table that a file or flags describe.
func TestOperatingAdoptedTables(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders", numbered(1)...)
	execute(t, database, `create table outbox_messages (id uuid primary key default gen_random_uuid(), type text, content jsonb,
			occurred_on_utc timestamptz default clock_timestamp(), processed_on_utc timestamptz, error text);
		insert into outbox_messages (type, content) values ('dies', '{"n": 1}'), ('waits', '{"n": 2}'), ('goes', '{"n": 3}')`)
	settleRows(t, database, "mails", func(m penstock.Message) driver.Verdict {
		failed := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: m.Topic + ": refused"}}
		return map[string]driver.Verdict{
			"dies": {Outcome: driver.Dead, Failures: failed}, "waits": {Outcome: driver.Parked, Failures: failed, RetryIn: time.Hour}, "goes": {},
		}[m.Topic]
	})
	execute(t, database, `insert into outbox_messages (type, content) values ('new', '{}')`)
	file := yaml(t, "database_url: "+database+`
subscriptions:
  - {name: mails, adopt: dotnet, sink: discard}
  - {name: gone, adopt: {preset: events, table: nowhere}, sink: discard}
`)
	for _, tc := range []struct {
		name  string
		flags []string
		said  string // in suggested command lines
		meant string // database, in those of status
	}{
		{"file", []string{"--config", file}, "", "--config " + file},
		{"flags", []string{"--database-url", database, "--adopt", "dotnet", "--table", "outbox_messages"}, " --adopt dotnet --table outbox_messages", "--database-url " + shell.Word(database)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			with := func(args ...string) []string { return append(args, tc.flags...) }
			contains(t, strings.ReplaceAll(must(t, with("status", "mails")...), "\n  ", " "), "TABLE", "outbox_messages", "outbox_messages/mails: 1 dead letter to retry or to discard: penstock dead list "+tc.meant+" mails"+tc.said+"\n",
				"no relay runs it, and 2 messages wait")
			contains(t, must(t, with("dead", "list", "mails")...), "dies: refused")
			contains(t, must(t, with("parked", "mails")...), "waits: refused", "in ")
			var dead struct{ ID, Topic, Payload string }
			out := must(t, with("dead", "list", "mails", "--json")...)
			if err := json.Unmarshal([]byte(out), &dead); err != nil || dead.Topic != "dies" {
				t.Fatalf("%q, %v", out, err)
			}
			contains(t, must(t, with("dead", "show", "mails", dead.ID)...), `{"n": 1}`, "of outbox_messages/mails", "penstock dead retry "+tc.meant+" mails"+tc.said)
			same(t, "of no key", must(t, with("parked", "mails", "--retry", "--key", "none")...), "0 keys of outbox_messages/mails waited, and will be tried now.\n")
			invoke(t, with("parked", "mails", "--subscription", "mails", "--give-up", "1")...).wants2(t, terminal.ExitFailure, "a row of an adopted table cannot be given up", "lower max_attempts")
			invoke(t, with("dead", "retry", "mails", "nobody")...).wants(t, terminal.ExitFailure, `outbox_messages/mails has no such dead letter: id "nobody"`)
			invoke(t, with("dead", "retry", "mails", "--group", "g")...).wants(t, terminal.ExitUsage, "--group chooses among jobs")
		})
	}
	var status statusJSON
	if err := json.Unmarshal([]byte(must(t, "status", "--json", "--config", file)), &status); err != nil || len(status.Outboxes) != 1 || len(status.Adopted) != 2 {
		t.Fatalf("%+v, %v", status, err)
	}
	if mails := status.Adopted[0]; mails.Table != "outbox_messages" || mails.Subscription != "mails" || mails.DeadLetters != 1 || mails.Parked != 1 || mails.Backlog != 1 || mails.Settled == 0 {
		t.Errorf("got %+v", mails)
	}
	if gone := status.Adopted[1]; !strings.Contains(gone.Error, "nowhere") {
		t.Errorf("got %+v", gone)
	}
	contains(t, must(t, "status", "--config", file), "orders", "nowhere/gone: ")

	config := []string{"--config", file}
	same(t, "retried", must(t, append(config, "dead", "retry", "mails", "--error", "dies", "--json")...), `{"retried":1,"subscription":"mails","table":"outbox_messages"}`+"\n")
	settleRows(t, database, "mails", func(m penstock.Message) driver.Verdict {
		return driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: 2, At: time.Now(), Err: "again"}}}
	})
	contains(t, must(t, append(config, "dead", "discard", "mails", "--error", "again", "--yes")...), "of outbox_messages/mails discarded")
	contains(t, must(t, append(config, "dead", "list", "mails")...), "0 dead letters of outbox_messages/mails")

	invoke(t, append(config, "subscription", "drop", "mails")...).wants(t, terminal.ExitUsage, "nothing was dropped: there is no terminal to ask on")
	invoke(t, append(config, "subscription", "drop", "nobody", "--yes")...).wants(t, terminal.ExitUsage, `no subscription "nobody" adopts a table`)
	same(t, "dropped", must(t, append(config, "subscription", "drop", "mails", "--yes")...), "Subscription mails of table outbox_messages is gone; the table is as it was.\n")
	invoke(t, append(config, "dead", "list", "mails")...).wants(t, terminal.ExitFailure, `subscription "mails" of table outbox_messages: no such subscription`)
	// With only its name: no configuration has it, or its mapping no longer fits.
	for _, by := range [][]string{{"--database-url", database}, {"--adopt", "debezium", "--table", "outbox_messages", "--database-url", database}} {
		settleRows(t, database, "mails", func(penstock.Message) driver.Verdict { return driver.Verdict{} })
		same(t, "dropped by name", must(t, append([]string{"subscription", "drop", "mails", "--yes"}, by...)...), "Subscription mails of table public.outbox_messages is gone; the table is as it was.\n")
	}
	invoke(t, append(config, "parked", "nothing")...).wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox`)
	invoke(t, append(config, "dead", "list", "nothing")...).wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox`)
	invoke(t, "parked", "mails", "--table", "t", "--database-url", database).wants(t, terminal.ExitUsage, "--table goes with --adopt")
}
