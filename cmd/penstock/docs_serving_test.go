package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli/console"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/postgres/adopt"
)

const here = `http://127\.0\.0\.1:\d+`

func TestIngestDocs(t *testing.T) {
	database := sqliteFile(t)
	r := newReader(t, "docs/guides/ingest.md", database)
	commands := r.commands(0, 5)
	r.run(commands[0], step{with: []string{"sqlite:app.db", database}})
	r.run(commands[1], step{})
	r.run(commands[2], step{shows: "Outbox orders is ready."})
	_, answer, _ := strings.Cut(commands[4].Comment, "→ ")
	post := func(run *running) { r.curl(commands[4], "http://127.0.0.1:8080", run.finds(here), "", answer) }
	const listen, free = "127.0.0.1:8080", "127.0.0.1:0"
	r.run(commands[3], step{with: []string{listen, free}, while: post})
	same(t, "published", r.published("orders"), `{"total":10}`)
	r.follow(1,
		step{shows: "Inbox ingest is ready."},
		step{with: []string{listen, free}, while: func(run *running) { post(run); post(run) }})
	same(t, "published again, once", r.published("orders"), `{"total":10} {"total":10}`)
}

func TestConsoleDocs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r := newReader(t, "docs/operations/console.md", sqliteFile(t))
	r.must("queue", "create", "emails")
	emails := r.queues().DriverQueue("emails")
	r.jobs("emails", "1")
	for _, j := range r.claim("emails", "") {
		if err := emails.DeadLetter(t.Context(), j.Lease, "refused"); err != nil {
			t.Fatal(err)
		}
	}
	token := strings.Repeat("0f", 32) // as openssl prints it
	said := "http://" + console.Listen
	commands := r.commands(0, 3)
	api := *r
	api.page = "docs/reference/console-api.md"
	requests := api.commands(0, 5)

	delete(r.env, "PENSTOCK_DATABASE_URL")
	r.run(commands[0], step{with: []string{"--console", "--console=127.0.0.1:0"}, more: []string{"--limit", "5"}, while: func(run *running) {
		if code, text := get(t, run.finds(here), ""); code != http.StatusOK || !strings.Contains(text, "Overview") {
			t.Errorf("%d %s", code, text)
		}
	}})
	r.env["PENSTOCK_DATABASE_URL"] = r.database
	contains(t, commands[1].Comment, said+"/")
	r.run(commands[1], step{more: []string{"--listen", "127.0.0.1:0"}, while: func(run *running) {
		if code, text := get(t, run.finds(here), ""); code != http.StatusOK || !strings.Contains(text, "emails") {
			t.Errorf("%d %s", code, text)
		}
	}})
	r.run(commands[2], step{with: []string{"$(openssl rand -hex 32)", token, "0.0.0.0:8484", "127.0.0.1:0"}, while: func(run *running) {
		at := run.finds(here + "/penstock/")
		if code, _ := get(t, at, ""); code != http.StatusUnauthorized {
			t.Errorf("without the token: %d", code)
		}
		answers := []string{`"queue":"emails"`, `"error":"refused"`, `"cause":"refused"`, `"matched":1`, ""}
		for i, c := range requests {
			r.curl(c, "localhost:8484/", at, token, answers[i])
		}
	}})
	if q := r.queue("emails"); !*q.Paused || q.DeadLetters != 1 {
		t.Errorf("the queue is %+v", q)
	}
}

func TestMetricsDocs(t *testing.T) {
	database := sqliteFile(t)
	r := newReader(t, "docs/reference/metrics.md", database)
	r.outbox("orders", numbered(1)...)
	r.must("queue", "create", "emails")
	r.executable("send-mail", "cat")
	write(t, "penstock.yaml", "database_url: "+database+"\nsubscriptions: [{name: billing, outbox: orders, sink: discard}]\n")
	has := func(series string) func(*running) {
		return func(run *running) {
			at := run.finds(here + "/metrics")
			run.until(series, func() bool {
				_, text := get(t, at, "")
				return strings.Contains(text, "\n"+series)
			})
			if code, text := get(t, strings.TrimSuffix(at, "metrics")+"healthz", ""); code != http.StatusOK {
				t.Errorf("%d %s", code, text)
			}
		}
	}
	r.follow(0,
		step{with: []string{"127.0.0.1:9464", "127.0.0.1:0"}, while: has(`penstock_relay_sent_messages_total{outbox="orders",subscription="billing"} 1`)},
		step{with: []string{"127.0.0.1:9465", "127.0.0.1:0"}, while: has(`penstock_worker_claimed_jobs_total{queue="emails"} 0`)},
		step{more: []string{"--metrics-listen", "127.0.0.1:0"}, while: has(`penstock_queue_paused{queue="emails"} 0`)})

	spans := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		var got tracepb.TracesData
		if err := proto.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
		for _, of := range got.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					spans <- s.Name
				}
			}
		}
	}))
	defer collector.Close()
	if err := r.store.Publish(t.Context(), "orders", penstock.Message{Topic: "t", Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}); err != nil {
		t.Fatal(err)
	}
	r.follow(1,
		step{with: []string{"http://localhost:4318", collector.URL}},
		step{},
		step{while: func(run *running) {
			run.until("nothing waits", func() bool {
				status, err := r.store.Status(t.Context())
				return err == nil && status[0].Subscriptions[0].Backlog == 0
			})
		}})
	select {
	case name := <-spans:
		same(t, "span", name, "send orders/billing")
	default:
		t.Error("no span was sent") // at the latest when the relay ends
	}
}

// brokerQueue is a queue of RabbitMQ that gets the messages whose topic is its name.
func brokerQueue(t *testing.T) (name string, messages func() int) {
	connection, err := amqp.Dial(testserver.RabbitMQURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("penstock_test_%08x", rand.Uint32())
	declare := func() int {
		q, err := channel.QueueDeclare(name, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	declare()
	t.Cleanup(func() { _, _ = channel.QueueDelete(name, false, false, false) })
	return name, declare
}

// netTable is the table that pages adopt, as .NET's template creates it, with rows of one type, and more
// statements.
func netTable(kind string, rows int, more string) string {
	return fmt.Sprintf(`create schema shop; create table shop.outbox_messages (id uuid primary key default gen_random_uuid(), type text not null, content jsonb not null,
			occurred_on_utc timestamptz not null default clock_timestamp(), processed_on_utc timestamptz, error text);
		insert into shop.outbox_messages (type, content) select '%s', '{}' from generate_series(1, %d);
		analyze shop.outbox_messages; %s`, kind, rows, more)
}

func TestAdoptingDocs(t *testing.T) {
	database := postgrestest.Database(t)
	broker := testserver.RabbitMQURL(t)
	kind, arrived := brokerQueue(t)
	r := newReader(t, "docs/guides/adopting.md", database)
	execute(t, database, netTable(kind, 1500, ""))
	r.follow(0,
		step{shows: "dotnet"},
		step{shows: "missing-index", code: terminal.ExitCheck},
		step{answers: "y\n", shows: "missing-index…created in…Left now: 0 critical, 0 warnings"},
		step{with: []string{"amqp://localhost/", broker}, while: func(run *running) {
			run.until("the rows are at the broker", func() bool { return arrived() == 1500 })
		}})

	write(t, "penstock.yaml", "database_url: "+database+"\nsubscriptions:\n  - {name: billing, adopt: {preset: dotnet, table: shop.outbox_messages}, sink: discard}\n")
	execute(t, database, `insert into shop.outbox_messages (type, content) values ('dies', '{}'), ('waits', '{}')`)
	settle := func(subscription string) {
		settleRowsOf(t, database, adopt.Config{Preset: "dotnet", Table: "shop.outbox_messages"}, subscription, func(m penstock.Message) driver.Verdict {
			failed := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no such queue"}}
			if m.Topic == "dies" {
				return driver.Verdict{Outcome: driver.Dead, Failures: failed}
			}
			return driver.Verdict{Outcome: driver.Parked, Failures: failed, RetryIn: time.Hour}
		})
	}
	commands := r.commands(1, 5)
	settle("shop.outbox_messages") // which the relay has left; another relay may not mark the same rows
	r.run(commands[2], step{shows: "1 dead letter of shop.outbox_messages/shop.outbox_messages"})
	r.must("subscription", "drop", "shop.outbox_messages", "--yes", "--database-url", database)
	settle("billing")
	r.run(commands[0], step{shows: "billing"})
	r.run(commands[1], step{shows: "dies…no such queue"})
	r.run(commands[3], step{shows: "no such queue"})
	r.run(commands[4], step{answers: "billing\n", shows: "Subscription billing of table shop.outbox_messages is gone; the table is as it was."})
}

// The page's statements for YugabyteDB run here on PostgreSQL.
func TestEnginesDocs(t *testing.T) {
	plain := testserver.Database(t, testserver.PostgresURL(t))
	broker := testserver.RabbitMQURL(t)
	kind, arrived := brokerQueue(t)
	r := newReader(t, "docs/guides/other-databases.md", sqliteFile(t))
	yugabyte := []string{"postgres://yugabyte@db:5433/shop", plain}
	r.follow(0, step{with: yugabyte, shows: "were created"}, step{with: yugabyte, shows: "Outbox orders is ready."})
	same(t, "outboxes", must(t, "outbox", "list", "--database-url", plain, "--profile", "portable"), "orders\n")

	at, err := url.Parse(testserver.MariaDBDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	schema := strings.TrimPrefix(at.Path, "/")
	execute(t, plain, netTable(kind, 3, "create index on shop.outbox_messages (occurred_on_utc, id) where processed_on_utc is null"))
	db, err := mysql.Connect(at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"create table outbox_messages (id uuid primary key default uuid(), type varchar(100) not null, content json not null, occurred_on_utc datetime(6) not null default utc_timestamp(6), " +
			"processed_on_utc datetime(6), error text, key waits (processed_on_utc, occurred_on_utc, id))",
		"insert into outbox_messages (type, content) values ('" + kind + "', '{}'), ('" + kind + "', '{}')",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "migrate", "--database-url", at.String(), "--schema", schema)
	r.follow(1,
		step{with: []string{"amqp://localhost/", broker, "postgres://db/shop", plain}, while: func(run *running) {
			run.until("3 rows are at the broker", func() bool { return arrived() == 3 })
		}},
		step{with: []string{"amqp://localhost/", broker, "mysql://db:3306/shop", at.String(), "shop.outbox_messages", schema + ".outbox_messages"}, more: []string{"--schema", schema}, while: func(run *running) {
			run.until("2 more are at the broker", func() bool { return arrived() == 5 })
		}})
}
