package sqlite_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/sqlite"
)

// Any language can do this: an INSERT next to the business data.
func TestPlainInsert(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	mustExec(t, app, `create table orders (id integer primary key, total integer)`)
	before := time.Now().Add(-time.Second)
	for _, insert := range []string{
		`insert into penstock_outbox_orders (payload) values ('text')`,
		`insert into penstock_outbox_orders (key, topic, headers, payload) values ('k', 'order.made', '{"traceparent": "00-1", "n": 7}', x'00ff')`,
		`insert into penstock_outbox_orders (id, key, payload) values ('mine', null, '')`,
		`insert into penstock_outbox_orders (key, payload) values (42, x'')`,
		`insert into penstock_outbox_orders (payload) values (42)`,
	} {
		tx, err := app.Begin()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{`insert into orders (total) values (1)`, insert} {
			if _, err := tx.Exec(statement); err != nil {
				t.Fatal(statement, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := fetchAll(t, subscribe(t, s, "billing"))
	if len(got) != 5 {
		t.Fatalf("got %d messages, want 5: %v", len(got), got)
	}
	want := []penstock.Message{
		{Payload: []byte("text")},
		{Key: "k", Topic: "order.made", Headers: map[string]string{"traceparent": "00-1", "n": "7"}, Payload: []byte{0, 255}},
		{ID: "mine"},
		{Key: "42"},
		{Payload: []byte("42")},
	}
	uid := scan[string](t, app, `select uid from penstock_outboxes`)
	for i, w := range want {
		g := got[i]
		if g.Key != w.Key || g.Topic != w.Topic || !maps.Equal(g.Headers, w.Headers) || !bytes.Equal(g.Payload, w.Payload) {
			t.Errorf("message %d is %+v, want %+v", i, g, w)
		}
		if w.ID == "" {
			w.ID = messageid.Outbox{UID: uid}.ID(int64(i+1), g.CreatedAt)
		}
		if g.ID != w.ID || g.Seq != int64(i+1) || g.Attempt != 1 {
			t.Errorf("message %d has id %q, seq %d, attempt %d; want id %q", i, g.ID, g.Seq, g.Attempt, w.ID)
		}
		if g.CreatedAt.Before(before) || g.CreatedAt.After(before.Add(time.Hour)) {
			t.Errorf("message %d was created at %s, now is %s", i, g.CreatedAt, time.Now())
		}
	}
}

// Order is that of commits, whatever a producer writes as the time of a message. No time keeps a message from being read.
func TestCreatedAtIsNoOrder(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	src := subscribe(t, s, "billing")
	for _, created := range []string{"9223372036854775807", "5", "-9223372036854775808"} {
		mustExec(t, app, `insert into penstock_outbox_orders (key, created_at, payload) values ('k', `+created+`, '')`)
	}
	_, batches := fetchAll(t, src)
	b := batches[0].Batch
	if len(b.Messages) != 3 || !b.Place(0).Before(b.Place(1)) || !b.Place(1).Before(b.Place(2)) {
		t.Fatalf("%v with the places %v, want three in order of their seqs", b.Messages, b.Places)
	}
	must(t, storetest.Settle(t.Context(), src, driver.Settled{Batch: b, Verdicts: slices.Repeat([]driver.Verdict{{Outcome: driver.Dead}}, 3)}))
	letters, err := s.DeadLetters(t.Context(), admin.DeadLetterQuery{Outbox: "orders", Subscription: "billing"})
	must(t, err)
	if len(letters) != 3 {
		t.Errorf("%d dead letters, want 3", len(letters))
	}
	_, err = s.Status(t.Context())
	must(t, err)
}

// The table refuses what no broker could carry, and shows which column it is.
func TestPlainInsertOfWhatCannotBeCarried(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	for column, value := range map[string]any{
		"id":         "a\x00b",
		"key":        "a\x00b",
		"topic":      strings.Repeat("é", 513),
		"headers":    `["not", "an object"]`,
		"payload":    nil,
		"created_at": "2013-01-01",
	} {
		_, err := app.Exec(`insert into penstock_outbox_orders (payload) values ('x')`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = app.Exec(`update penstock_outbox_orders set `+column+` = ?`, value); err == nil || !strings.Contains(err.Error(), column) {
			t.Errorf("%s = %.20q: the error %v does not name the column", column, value, err)
		}
	}
	if _, err := app.Exec(`insert into penstock_outbox_orders (headers, payload) values ('{broken', 'x')`); err == nil || !strings.Contains(err.Error(), "JSON") {
		t.Errorf("broken headers: %v", err)
	}
	// Constraints can be switched off. Even so, no other message is held up.
	mustExec(t, app, `pragma ignore_check_constraints = 1`)
	mustExec(t, app, `insert into penstock_outbox_orders (headers, payload) values ('{broken', 'last')`)
	got, _ := fetchAll(t, subscribe(t, s, "billing"))
	last := got[len(got)-1]
	if string(last.Payload) != "last" || last.Headers["penstock-invalid-headers"] != "{broken" {
		t.Errorf("the message with broken headers is %+v", last)
	}
}

// Names are quoted, kept apart by their capitals, and never run.
func TestTable(t *testing.T) {
	for name, want := range map[string]string{
		"orders":   `"penstock_outbox_orders"`,
		"Orders":   `"penstock_outbox_Orders~1"`,
		"oRDERS":   `"penstock_outbox_oRDERS~3e"`,
		"orders~1": `"penstock_outbox_orders~1~0"`,
		`a"b`:      `"penstock_outbox_a""b"`,
	} {
		if got := sqlite.Table(name); got != want {
			t.Errorf("Table(%q) = %s, want %s", name, got, want)
		}
	}
	_, s, app := newFile(t, sqlite.Options{})
	ctx := t.Context()
	for _, name := range []string{"Orders", "ORDERS", "orders~1", `x"; drop table penstock_outboxes; --`} {
		if err := s.CreateOutbox(ctx, name); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		mustExec(t, app, `insert into `+sqlite.Table(name)+` (payload) values (?)`, name)
		src, err := s.Subscribe(ctx, driver.Subscribe{Outbox: name, Subscription: name})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if got, _ := fetchAll(t, src); len(got) != 1 || string(got[0].Payload) != name {
			t.Errorf("%q: got %v", name, got)
		}
	}
}

// Publish explains what it can tell from inside the application's transaction.
func TestPublishErrors(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := s.Outbox("invoices").PublishTx(t.Context(), tx, penstock.Message{}); !errors.Is(err, penstock.ErrNoOutbox) || !strings.Contains(err.Error(), "CreateOutbox or penstock outbox create invoices; if it is a queue, use EnqueueTx") {
		t.Errorf("unknown outbox: %v", err)
	}
	if _, err := s.Queue("orders").EnqueueTx(t.Context(), tx, penstock.NewJob{}); !errors.Is(err, penstock.ErrNoQueue) || !strings.Contains(err.Error(), "if it is an outbox, use PublishTx") {
		t.Errorf("an outbox as a queue: %v", err)
	}
	var field *penstock.FieldError
	err = s.Outbox("orders").PublishTx(t.Context(), tx, penstock.Message{Key: "good"}, penstock.Message{Key: "\xff"})
	if !errors.As(err, &field) || field.Field != "key" || !strings.Contains(err.Error(), "message 2 of 2") {
		t.Errorf("bad key: %v", err)
	}
	var n int
	if err := tx.QueryRow(`select count(*) from penstock_outbox_orders`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d messages were written beside the bad one, %v", n, err)
	}
	fresh := openApp(t, t.TempDir()+"/other.db")
	other, err := fresh.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if err := s.Outbox("orders").PublishTx(t.Context(), other, penstock.Message{}); !errors.Is(err, penstock.ErrNotMigrated) || !strings.Contains(err.Error(), "call Migrate") {
		t.Errorf("not migrated: %v", err)
	}
}

// More than one statement's worth, by number and by size.
func TestPublishInChunks(t *testing.T) {
	_, s, _ := newFile(t, sqlite.Options{})
	msgs := numbered(1000)
	for i := 400; i < 410; i++ {
		msgs[i].Payload = bytes.Repeat([]byte{byte(i)}, 1<<20)
	}
	if err := s.Publish(t.Context(), "orders", msgs...); err != nil {
		t.Fatal(err)
	}
	got, _ := fetchAll(t, subscribe(t, s, "billing"))
	if len(got) != len(msgs) {
		t.Fatalf("got %d messages, want %d", len(got), len(msgs))
	}
	for i := range msgs {
		if !bytes.Equal(got[i].Payload, msgs[i].Payload) {
			t.Fatalf("message %d came out of turn", i)
		}
	}
}
