package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	neturl "net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	relays "github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/redact"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestSuggestedCommandsMeanTheSameDatabase(t *testing.T) {
	const secret = "postgres://app:secret@localhost/shop"
	variable := secret
	a := &cli.App{DatabaseURL: secret, Schema: "odd one", Getenv: func(string) string { return variable }}
	same(t, "a verb", a.Suggest("run penstock migrate"), "run penstock migrate --database-url \"$PENSTOCK_DATABASE_URL\" --schema 'odd one'")
	same(t, "a verb of two words", a.Suggest("penstock outbox create NAME makes one"), "penstock outbox create --database-url \"$PENSTOCK_DATABASE_URL\" --schema 'odd one' NAME makes one")
	same(t, "what another role runs", a.Suggest("penstock queue grant mails ROLE --work"), "penstock queue grant --schema 'odd one' mails app --work")
	same(t, "no verb", a.Suggest("a newer penstock"), "a newer penstock")
	for _, variable = range []string{"", "postgres://app:secret@localhost/other"} {
		same(t, "the variable names another database", a.Suggest("run penstock migrate"), "run penstock migrate --database-url postgres://app:PASSWORD@localhost/shop --schema 'odd one'")
	}
	same(t, "what the owner runs", a.Suggest("run penstock migrate as the schema's owner, admin"), "run penstock migrate --database-url postgres://admin@localhost/shop --schema 'odd one' as the schema's owner, admin")
	same(t, "what the owner runs after a colon", a.Suggest("drop it as the owner of the tables, admin, if it is not needed: penstock subscription drop orders x"),
		"drop it as the owner of the tables, admin, if it is not needed: penstock subscription drop --database-url postgres://admin@localhost/shop --schema 'odd one' orders x")
	same(t, "what one of two runs", a.Suggest("start its relay: penstock relay --outbox orders, or drop it as the owner of the tables, admin: penstock outbox drop orders"),
		"start its relay: penstock relay --database-url postgres://app:PASSWORD@localhost/shop --schema 'odd one' --outbox orders, "+
			"or drop it as the owner of the tables, admin: penstock outbox drop --database-url postgres://admin@localhost/shop --schema 'odd one' orders")
	same(t, "the owner has the URL already", a.Suggest("run penstock migrate as the schema's owner, app"), "run penstock migrate --database-url postgres://app:PASSWORD@localhost/shop --schema 'odd one' as the schema's owner, app")
	same(t, "nothing given", (&cli.App{}).Suggest("run penstock migrate"), "run penstock migrate")

	url := postgrestest.Database(t)
	t.Chdir(t.TempDir())
	for _, verb := range []string{"status", "outbox list", "publish orders --topic t", "migrate --json --schema elsewhere"} {
		o := invoke(t, append(strings.Fields(verb), "--database-url", url, "--schema", "nope")...)
		if strings.HasPrefix(verb, "migrate") {
			o.wants(t, terminal.ExitOK, "") // the last one counts
			continue
		}
		o.wants(t, terminal.ExitDatabase, "penstock migrate --database-url "+shell.Word(url)+" --schema nope")
	}
	contains(t, must(t, "status", "--database-url", url, "--schema", "nope2", "--help"), "penstock status orders --watch")
}

// A pasted next step must not act on the database of the variable if another one was given.
func TestNextStepsDoNotTakeAnotherDatabase(t *testing.T) {
	url, err := neturl.Parse(postgrestest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	url.User = neturl.UserPassword(url.User.Username(), "hunter2")
	t.Chdir(t.TempDir())
	t.Setenv("PENSTOCK_DATABASE_URL", "sqlite:other.db")
	const flag = "--database-url"
	for _, verb := range []string{"status --schema a", "migrate --schema a", "status --schema a", "inbox status --schema a"} {
		o := invoke(t, append(strings.Fields(verb), flag, url.String())...)
		said := o.stdout + o.stderr
		contains(t, said, flag+" '"+strings.Replace(url.String(), "hunter2", "PASSWORD", 1)+"'")
		if strings.Contains(said, "PENSTOCK_DATABASE_URL") || strings.Contains(said, "hunter2") {
			t.Errorf("%s names the variable's database, or the password:\n%s", verb, said)
		}
	}
	t.Setenv("PENSTOCK_DATABASE_URL", url.String())
	contains(t, must(t, "migrate", "--schema", "b", flag, url.String()), "outbox create "+flag+` "$PENSTOCK_DATABASE_URL"`)
}

// The next step that show prints runs when it is pasted, wherever the thing was found. A URL with a password is in the variable then.
func TestNextCommandsRunWhenPasted(t *testing.T) {
	t.Run("a plain URL", func(t *testing.T) { nextCommandsRun(t, postgrestest.Database(t)) })
	t.Run("a password", func(t *testing.T) {
		url, err := neturl.Parse(postgrestest.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		url.User = neturl.UserPassword(url.User.Username(), "hunter2")
		t.Setenv("PENSTOCK_DATABASE_URL", url.String())
		nextCommandsRun(t, url.String())
	})
}

func nextCommandsRun(t *testing.T, url string) {
	t.Chdir(t.TempDir())
	given := func(args ...string) []string { return append(args, "--database-url", url, "--schema", "elsewhere") }
	for _, verb := range []string{"migrate", "outbox create orders", "publish orders --payload x", "queue create mails", "enqueue mails x", "inbox create billing"} {
		must(t, given(strings.Fields(verb)...)...)
	}
	store, err := drivers.OpenStore(t.Context(), url, "elsewhere", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	(&desk{t: t, store: store}).relay("orders", "default", dies)
	queue := store.(driver.QueueStore).DriverQueue("mails")
	jobs, err := queue.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Minute})
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "select elsewhere.inbox_in_order('billing', 'k', 'm2', 'm1', null, 'x', interval '1 hour')")
	if err := errors.Join(err, queue.DeadLetter(t.Context(), jobs[0].Lease, "no")); err != nil {
		t.Fatal(err)
	}
	for _, show := range []string{"dead show orders --seq 1", "dead show mails 1", "inbox held billing m2"} {
		shown := must(t, given(strings.Fields(show)...)...)
		_, next, _ := strings.Cut(shown, "\nNext: penstock ")
		next, _, _ = strings.Cut(next, "\n")
		if strings.Contains(next, redact.Masked) {
			t.Errorf("it cannot be pasted: %s", next)
		}
		must(t, strings.Fields(os.ExpandEnv(strings.NewReplacer("'", "", `"`, "").Replace(next)))...)
	}
	contains(t, must(t, given("schedule", "list", "mails")...), "penstock schedule set --database-url ")
}

func TestOutboxDropTellsWhatIsLost(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", numbered(3)...)
		d.relay("orders", "billing", dies)
		if err := d.store.Publish(t.Context(), "orders", numbered(2)...); err != nil {
			t.Fatal(err)
		}
		d.relay("orders", "audit", deliver)
		lost := "audit had 0 messages to deliver and 0 dead letters; billing had 2 messages to deliver and 3 dead letters"
		d.asked("nothing\n", "outbox", "drop", "orders").wants2(t, terminal.ExitFailure, "with every message in it, delivered or not: "+lost+".\nType its name", "nothing was dropped")
		o := d.asked("orders\n", "outbox", "drop", "orders", "--json")
		same(t, "json", o.stdout, `{"backlog":2,"dead_letters":3,"outbox":"orders","parked":0}`+"\n")
		d.outbox("orders", numbered(1)...)
		same(t, "without a subscription", d.must("outbox", "drop", "orders", "--yes"), "Outbox orders is gone (it had no subscription, so nothing was delivered).\n")
	})
}

func TestJSONLogsNameTheUnitOfDurations(t *testing.T) {
	for format, want := range map[string]string{"json": `"in_seconds":1.5`, "text": "in=1.5s"} {
		var logged bytes.Buffer
		a := &cli.App{Stderr: terminal.NewScrubber(&logged), LogLevel: "info", LogFormat: format}
		a.Logger().Info("waiting", "in", 1500*time.Millisecond, "n", 3)
		contains(t, logged.String(), want, "waiting", "3")
	}
	var logged bytes.Buffer
	a := bareDesk(t).app(strings.NewReader(""), io.Discard, &logged)
	a.Parts = func(_ context.Context, _ *config.Config, o relays.Options) error {
		o.Log.Info("waiting", "in", 1500*time.Millisecond)
		return nil
	}
	runWith(t.Context(), a, []string{"relay", "--config", yaml(t, "database_url: sqlite:a.db\nlog: {format: json}\nsubscriptions: [{name: a, outbox: b, sink: discard}]\n")})
	contains(t, logged.String(), `"in_seconds":1.5`)
}

func TestErrorsOfConnectingSayOneThing(t *testing.T) {
	const whom, refused, wrong = "failed to connect to `user=app database=shop`:", "127.0.0.1:5432 (localhost): tls error: server refused TLS connection", "127.0.0.1:5432 (localhost): failed SASL auth: FATAL: password authentication failed for user \"app\" (SQLSTATE 28P01)"
	same(t, "a wrong password", terminal.OneLine(whom+"\n\t"+refused+"\n\t"+wrong), whom+" "+wrong)
	same(t, "a server without TLS", terminal.OneLine(whom+"\n\t"+refused), whom+" "+refused)
}
