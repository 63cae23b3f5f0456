package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/store/postgres/postgrestest"
)

func TestSuggestedCommandsMeanTheSameDatabase(t *testing.T) {
	a := &app{databaseURL: "postgres://app:secret@localhost/shop", schema: "odd one"}
	same(t, "a verb", a.suggest("run penstock migrate"), "run penstock migrate --database-url postgres://app:xxxxx@localhost/shop --schema 'odd one'")
	same(t, "a verb of two words", a.suggest("penstock outbox create NAME makes one"), "penstock outbox create --database-url postgres://app:xxxxx@localhost/shop --schema 'odd one' NAME makes one")
	same(t, "what another role runs", a.suggest("penstock queue grant mails ROLE --work"), "penstock queue grant --schema 'odd one' mails ROLE --work")
	same(t, "no verb", a.suggest("a newer penstock"), "a newer penstock")
	same(t, "nothing given", (&app{}).suggest("run penstock migrate"), "run penstock migrate")

	url := postgrestest.Database(t)
	t.Chdir(t.TempDir())
	for _, verb := range []string{"status", "outbox list", "publish orders --topic t", "migrate --json --schema elsewhere"} {
		o := cli(t, append(strings.Fields(verb), "--database-url", url, "--schema", "nope")...)
		if strings.HasPrefix(verb, "migrate") {
			o.wants(t, exitOK, "") // the last one counts
			continue
		}
		o.wants(t, exitDatabase, "penstock migrate --database-url "+shellWord(url)+" --schema nope")
	}
	contains(t, must(t, "status", "--database-url", url, "--schema", "nope2", "--help"), "penstock status orders --watch")
}

func TestOutboxDropTellsWhatIsLost(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", numbered(3)...)
		d.relay("orders", "billing", bury)
		if err := d.store.Publish(t.Context(), "orders", numbered(2)...); err != nil {
			t.Fatal(err)
		}
		d.relay("orders", "audit", deliver)
		lost := "audit had 0 messages to deliver and 0 dead letters; billing had 2 messages to deliver and 3 dead letters"
		d.asked("nothing\n", "outbox", "drop", "orders").wants2(t, exitFailure, "with every message in it, delivered or not: "+lost+".\nType its name", "nothing was dropped")
		o := d.asked("orders\n", "outbox", "drop", "orders", "--json")
		same(t, "json", o.stdout, `{"backlog":2,"dead_letters":3,"outbox":"orders","parked":0}`+"\n")
		d.outbox("orders", numbered(1)...)
		same(t, "without a subscription", d.must("outbox", "drop", "orders", "--yes"), "Outbox orders is gone (it had no subscription, so nothing was delivered).\n")
	})
}

func TestJSONLogsNameTheUnitOfDurations(t *testing.T) {
	for format, want := range map[string]string{"json": `"in_seconds":1.5`, "text": "in=1.5s"} {
		var logged bytes.Buffer
		a := &app{stderr: &scrubber{w: &logged}, logLevel: "info", logFormat: format}
		log, err := a.logger()
		if err != nil {
			t.Fatal(err)
		}
		log.Info("waiting", "in", 1500*time.Millisecond, "n", 3)
		contains(t, logged.String(), want, "waiting", "3")
	}
}

func TestErrorsOfConnectingSayOneThing(t *testing.T) {
	const whom, refused, wrong = "failed to connect to `user=app database=shop`:", "127.0.0.1:5432 (localhost): tls error: server refused TLS connection", "127.0.0.1:5432 (localhost): failed SASL auth: FATAL: password authentication failed for user \"app\" (SQLSTATE 28P01)"
	same(t, "a wrong password", oneLine(whom+"\n\t"+refused+"\n\t"+wrong), whom+" "+wrong)
	same(t, "a server without TLS", oneLine(whom+"\n\t"+refused), whom+" "+refused)
}
