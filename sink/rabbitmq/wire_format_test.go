package rabbitmq_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// The sink adds these headers to a message's own, and no others: each costs the broker time.
func TestAddedHeaders(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)
	plain := penstock.Message{ID: "1", Topic: "orders.placed", CreatedAt: at, Attempt: 1}
	keyed := penstock.Message{ID: "2", Key: "k", Topic: "orders.placed", CreatedAt: at, Attempt: 2}
	for _, c := range []struct {
		name   string
		change func(*rabbitmq.Config)
		msg    penstock.Message
		want   amqp.Table
	}{
		{"nothing to add", func(*rabbitmq.Config) {}, plain, amqp.Table{}},
		{"key and attempt", func(*rabbitmq.Config) {}, keyed, amqp.Table{"penstock-key": "k", "penstock-attempt": int32(2)}},
		{"topic is not the routing key", func(c *rabbitmq.Config) { c.RoutingKey = "orders.{key}" }, keyed,
			amqp.Table{"penstock-key": "k", "penstock-attempt": int32(2), "penstock-topic": "orders.placed"}},
		{"created_at_header", func(c *rabbitmq.Config) { c.CreatedAtHeader = true }, plain, amqp.Table{"penstock-created-at": "2026-05-04T03:02:01.123456Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			room := newRoom(t, testserver.RabbitMQURL(t))
			cfg := room.config(t, host(t, room.url))
			cfg.CreatedAtHeader = false
			c.change(&cfg)
			if errs := open(t, cfg).Send(patient(t), []penstock.Message{c.msg}); errs != nil {
				t.Fatal(errs)
			}
			d, ok, err := room.ch.Get(room.queue, true)
			check(t, err)
			if !ok {
				t.Fatal("confirmed, and not in the queue")
			}
			if !maps.Equal(d.Headers, c.want) {
				t.Errorf("headers %v, want %v", d.Headers, c.want)
			}
			if !d.Timestamp.Equal(at.Truncate(time.Second)) {
				t.Errorf("timestamp %v", d.Timestamp)
			}
		})
	}
}

// The header content-type is AMQP's property and costs no header.
func TestContentType(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	msgs := orders(3)
	msgs[0].Key, msgs[0].Headers = "", map[string]string{"content-type": "application/json"}
	msgs[1].Key, msgs[1].Headers = "", map[string]string{"content-type": "text/plain", "tenant": "a"}
	msgs[2].Headers = map[string]string{"content-type": strings.Repeat("x", 256)}
	cfg := room.config(t, host(t, room.url))
	cfg.CreatedAtHeader = false
	errs := open(t, cfg).Send(patient(t), msgs)
	if len(errs) != 3 || errs[0] != nil || errs[1] != nil || !penstock.IsPermanent(errs[2]) {
		t.Fatalf("%v; want only the content type that is too long refused, for good", errs)
	}
	for _, want := range []struct {
		contentType string
		headers     amqp.Table
	}{{"application/json", nil}, {"text/plain", amqp.Table{"tenant": "a"}}} {
		d, ok, err := room.ch.Get(room.queue, true)
		check(t, err)
		if !ok || d.ContentType != want.contentType || !maps.Equal(d.Headers, want.headers) {
			t.Errorf("content_type %q, headers %v (there: %v); want %v", d.ContentType, d.Headers, ok, want)
		}
	}
}

// declare_queue creates a missing queue and leaves an existing one unchanged. Without a
// routing_key every message goes into that queue, whatever its topic.
func TestDeclareQueue(t *testing.T) {
	room := newRoom(t, testserver.RabbitMQURL(t))
	special := room.queue + "-special"
	_, err := room.ch.QueueDeclare(special, true, false, false, false, amqp.Table{"x-max-length": 1000})
	check(t, err)
	names := []string{room.queue + "-new", special, room.queue + "-{topic}"}
	for _, name := range names {
		cfg := rabbitmq.Config{URL: room.url, DeclareQueue: name}
		if errs := open(t, cfg).Send(patient(t), orders(3)); errs != nil {
			t.Errorf("%s: %v", name, errs)
		}
	}
	for _, name := range slices.Backward(names) {
		n, err := room.ch.QueueDelete(name, false, false, false)
		check(t, err)
		if n != 3 {
			t.Errorf("%s holds %d messages, want 3", name, n)
		}
	}
	errs := open(t, rabbitmq.Config{URL: room.url, DeclareQueue: "amq.reserved"}).Send(patient(t), orders(1))
	if errs == nil || !penstock.IsUnavailable(errs[0]) || !strings.Contains(errs[0].Error(), "choose another name") || strings.Contains(errs[0].Error(), "password") {
		t.Errorf("a reserved name: %v", errs)
	}
}
