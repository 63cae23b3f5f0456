package systemtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
)

// Subscriptions of one outbox do not wait for each other: while one sink is dead, or accepts
// messages and never confirms them, the other gets everything.
func TestFanOutIsIsolated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		upset func(*tcpproxy.Proxy)
	}{
		{"dead", (*tcpproxy.Proxy).Refuse},
		{"stalled", func(p *tcpproxy.Proxy) { p.Stall(tcpproxy.ToClient) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const messages = 1_000 // more than fit in flight
			database := ordersDatabase(t)
			broker := testserver.RabbitMQURL(t)
			proxy, throughProxy := through(t, broker)
			well, broken := queueFor(t, broker), queueFor(t, broker)
			config := filepath.Join(t.TempDir(), "penstock.yaml")
			content := fmt.Sprintf(`
database_url: %q
relay: {max_in_flight: 100}
subscriptions:
  - {name: well, outbox: orders, sink: {rabbitmq: {url: %q, routing_key: %s}}}
  - {name: broken, outbox: orders, sink: {rabbitmq: {url: %q, routing_key: %s}}}
`, database, broker, well, throughProxy, broken)
			if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			relay := start(t, "relay", "--config", config)
			publishKeyed(t, database, "before", 10)
			eventually(t, "both get messages", func() bool {
				return queueLength(t, broker, well) == 10 && queueLength(t, broker, broken) == 10
			})

			c.upset(proxy)
			publishKeyed(t, database, "meanwhile", messages)
			eventually(t, "the sink that works got everything", func() bool { return queueLength(t, broker, well) == 10+messages })
			awaitSubscription(t, database, "orders", "well", "and has it settled", func(s admin.SubscriptionStatus) bool { return s.Backlog == 0 })
			if s, _ := subscriptionOf(t, database, "orders", "broken"); s.Settled > 10 {
				t.Errorf("the broken sink's subscription has settled %d messages, of which it can have confirmed 10", s.Settled)
			}

			proxy.Resume()
			awaitSubscription(t, database, "orders", "broken", "the other one catches up", func(s admin.SubscriptionStatus) bool {
				return s.Backlog == 0 && s.Settled == 10+messages
			})
			if n := queueLength(t, broker, broken); n < 10+messages {
				t.Errorf("%d messages arrived, want at least %d", n, 10+messages)
			}
			relay.signal(syscall.SIGTERM)
			if o := relay.wait(); o.code != 0 {
				t.Errorf("exit code %d: %s", o.code, o.stderr)
			}
		})
	}
}

// queueFor creates a durable queue for one test, and routes its name to it.
func queueFor(t *testing.T, broker string) string {
	t.Helper()
	name := fmt.Sprintf("penstock_test_%08x", rand.Uint32())
	if _, err := channel(t, broker).QueueDeclare(name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn, err := amqp.Dial(broker)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err == nil {
			_, err = ch.QueueDelete(name, false, false, false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return name
}

// publishKeyed commits n messages with 100 keys in one transaction.
func publishKeyed(t *testing.T, database, topic string, n int) {
	t.Helper()
	execSQL(t, database, fmt.Sprintf("insert into penstock.orders (key, topic, payload) select 'k' || i %% 100, '%s', int4send(i) from generate_series(1, %d) i", topic, n))
}
