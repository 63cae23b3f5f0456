package main

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/sqlite"
)

// The commands on pages run unchanged, and behave as the pages say.

// refused gives each message a verdict: the topic dead becomes a dead letter, parked waits, and others are delivered. The payload is
// the reason.
func refused(m penstock.Message) driver.Verdict {
	failures := []penstock.Failure{{Attempt: m.Attempt, At: time.Now(), Err: string(m.Payload)}}
	switch m.Topic {
	case "parked":
		return driver.Verdict{Outcome: driver.Parked, Failures: failures, RetryIn: time.Hour}
	case "good":
		return driver.Verdict{}
	}
	return driver.Verdict{Outcome: driver.Dead, Failures: failures}
}

// alter changes the contents of an SQLite file.
func (r *reader) alter(statement string) {
	r.t.Helper()
	db, err := sqlite.OpenDB(strings.TrimPrefix(r.database, "sqlite:"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func(db *sql.DB) { _ = db.Close() }(db)
	if _, err := db.ExecContext(r.t.Context(), statement); err != nil {
		r.t.Fatal(err)
	}
}

func TestRetriesDocs(t *testing.T) {
	r := newReader(t, "docs/concepts/retries.md", sqliteFile(t))
	r.outbox("orders",
		penstock.Message{ID: "m1", Key: "a", Topic: "parked", Payload: []byte("full")},
		penstock.Message{ID: "m2", Key: "b", Topic: "dead", Payload: []byte("there is no queue")},
		penstock.Message{ID: "m3", Key: "c", Topic: "dead", Payload: []byte("too large")})
	r.relay("orders", "billing", refused)
	r.follow(0,
		step{shows: "PARKED…DEAD"},
		step{shows: "a …full"},
		step{shows: "1 key of orders/billing waited, and will be tried now."},
		step{shows: "m2…there is no queue…m3…too large"},
		step{shows: "1 dead letter of orders/billing"},
		step{with: []string{"ID", "m3"}, shows: "1 dead letter of orders/billing discarded"})
	same(t, "dead letters", r.dead("orders", "billing"), "")
}

func TestRelayingDocs(t *testing.T) {
	r := newReader(t, "docs/guides/relaying.md", sqliteFile(t))
	r.outbox("orders",
		penstock.Message{ID: "m1", Topic: "t", Payload: []byte("no such queue")},
		penstock.Message{ID: "m2", Topic: "t", Payload: []byte("too large")},
		penstock.Message{ID: "m3", Topic: "order.test", Payload: []byte("too old")},
		penstock.Message{ID: "m4", Topic: "order.test", Payload: []byte("too new")},
		penstock.Message{ID: "m5", Topic: "good"})
	r.relay("orders", "billing", refused)
	r.alter("update penstock_entries set died_at = died_at - 8 * 86400000000 where seq = (select seq from penstock_outbox_orders where id = 'm3')")
	r.follow(0,
		step{shows: "m1…no such queue…m2…too large"},
		step{with: []string{"ID", "m2"}, shows: "too large"},
		step{shows: "1 dead letter of orders/billing"},
		step{with: []string{"ID", "m2"}, shows: "1 dead letter"},
		step{answers: "y\n", shows: "1 dead letter of orders/billing discarded"})
	same(t, "dead letters", r.dead("orders", "billing"), "m4")
	same(t, "sent again, and anew", fmt.Sprint(len(r.relay("orders", "billing", deliver))), "2")
	r.outbox("other") // with which no outbox is created
	r.follow(1,
		step{shows: "orders"},
		step{answers: "y\n", shows: "of orders/billing will be delivered again, with the same ids"})
}

func TestWorkersDocs(t *testing.T) {
	r := newReader(t, "docs/guides/workers.md", sqliteFile(t))
	r.executable("send-mail", "cat > sent")
	r.follow(0,
		step{shows: "Queue emails is ready."},
		step{shows: "1"},
		step{while: func(run *running) {
			r.jobs("emails", "at once") // the other is delayed
			run.until("the job is done", func() bool { return nothingToDo(r.queue("emails")) })
			sent, err := os.ReadFile("sent")
			if err != nil || string(sent) != "at once" {
				t.Errorf("the command has got %q, %v", sent, err)
			}
		}},
		step{shows: "emails"})
	if q := r.queue("emails"); q.Delayed != 1 || *q.MaxAttempts != 10 || *q.MaxRunning != 5 {
		t.Errorf("%+v", q)
	}

	r.must("queue", "create", "reports")
	r.follow(1,
		step{shows: "nightly"},
		step{shows: "nightly…30 4 * * *"},
		step{shows: "nightly"})
	same(t, "schedules", r.must("schedule", "list", "reports", "--json"), "")

	emails := r.queues().DriverQueue("emails")
	var ids []string
	for i, j := range []penstock.NewJob{{Payload: []byte("1")}, {Group: "acme"}, {}} {
		made, err := emails.Enqueue(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, fmt.Sprint(made[0].ID))
		for _, claimed := range r.claim("emails", j.Group) {
			if err := emails.DeadLetter(t.Context(), claimed.Lease, []string{"disk full", "no such street", "no"}[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.alter("update penstock_dead_jobs set at = at - 31 * 86400000000 where seq = " + ids[2])
	r.follow(2,
		step{shows: ids[0] + "…disk full"},
		step{with: []string{"ID", ids[0]}, shows: "disk full"},
		step{shows: "1 dead letter of emails retried."},
		step{answers: "y\n", shows: "1 dead letter of emails discarded."})
	if len(r.deadErrors("emails")) != 1 {
		t.Errorf("dead letters: %v", r.deadErrors("emails"))
	}
}

func TestImportingDocs(t *testing.T) {
	r := newReader(t, "docs/guides/importing.md", sqliteFile(t))
	r.must("outbox", "create", "orders")
	r.must("queue", "create", "emails")
	line := docblock.Of(t, r.page, "json")[0]
	write(t, "events.jsonl", line+line)
	write(t, "jobs.jsonl", `{"payload":"1"}`+"\n")
	commands := r.commands(0, 3)
	r.run(commands[0], step{shows: "Inbox imports is ready."})
	for range 2 {
		r.run(commands[1], step{shows: "published to orders"})
		r.run(commands[2], step{})
	}
	same(t, "published", r.published("orders"), `{"total":10} {"total":10}`)
	same(t, "enqueued", fmt.Sprint(r.queue("emails").Ready), "1")
}

func TestInboxDocs(t *testing.T) {
	database := postgrestest.Database(t)
	r := newReader(t, "docs/guides/inbox.md", database)
	execute(t, database, `select penstock.create_inbox('billing');
		select penstock.inbox_in_order('billing', '42', 'm3', 'm2', '{"traceparent": "00-…"}', 'of m3');
		select penstock.inbox_in_order('billing', '43', 'm5', 'm4', '{}', '');
		select penstock.inbox_release('billing', key => '43');
		select penstock.inbox_due('billing', 10)`)
	r.follow(1,
		step{shows: "billing"},
		step{shows: "m3…42"},
		step{shows: "traceparent…of m3"},
		step{shows: "1 message"},
		step{shows: "m4…43…m5"},
		step{answers: "y\n", shows: "1 held message of billing discarded."})
	same(t, "held", r.must("inbox", "held", "billing", "--json"), "")

	again := newReader(t, r.page, sqliteFile(t))
	again.follow(0, step{shows: "Inbox billing is ready."}, step{shows: "billing…30d"})
}
