package systemtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
)

// newOrders is a database with an outbox "orders" and a ledger.
func newOrders(t testing.TB) *ledger {
	t.Helper()
	return newLedger(t, ordersDatabase(t), "orders")
}

// relay relays the ledger's messages with settings as in penstock.yaml.
func (l *ledger) relay(settings, sink string) *process {
	l.t.Helper()
	config := filepath.Join(l.t.TempDir(), "penstock.yaml")
	content := fmt.Sprintf("database_url: %q\nrelay: {%s}\nsubscriptions:\n  - {name: test, outbox: %s, sink: %q}\n", l.database, settings, l.outbox, sink)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return start(l.t, "relay", "--config", config)
}

// end stops a relay once it has nothing left to do.
func (l *ledger) end(relay *process) {
	l.t.Helper()
	relayed(l.t, l.database, l.outbox)
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		l.t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
}

// If the URL has several RabbitMQ hosts, the relay finds one that answers, at the start and
// whenever its own host is lost.
func TestTopologyRabbitMQHosts(t *testing.T) {
	topology(t)
	l := newOrders(t)
	broker := testserver.RabbitMQURL(t)
	queue := queueFor(t, broker)
	finish := readThroughInbox(t, l, broker, queue)
	var hosts [2]*tcpproxy.Proxy
	sink := broker
	hosts[0], sink = through(t, sink)
	hosts[1], _ = through(t, broker)
	sink = strings.Replace(sink, hosts[0].Addr(), hosts[0].Addr()+","+hosts[1].Addr(), 1)
	hosts[0].Refuse()
	stop := l.keepWriting("entry", 2)
	relay := l.relay("retry_max: 1s", sink+"?routing_key="+queue)
	for round := range times(3, 20) {
		before := l.count("rabbitmq")
		eventually(t, "messages flow through the host that is there", func() bool { return l.count("rabbitmq") > before+50 })
		hosts[round%2].Resume()
		hosts[1-round%2].Refuse()
	}
	stop()
	l.end(relay)
	finish()
	l.mustBeSound(l.database, "rabbitmq", l.vanished(l.database))
}

// Three RabbitMQ nodes have a quorum queue, and are killed one after another.
func TestTopologyRabbitMQCluster(t *testing.T) {
	if !longForm() {
		t.Skip("in make test-topologies: three nodes take long to start")
	}
	topology(t)
	l := newOrders(t)
	nodes := testserver.StartRabbitMQCluster(t, 3)
	var hosts []string
	for _, n := range nodes {
		hosts = append(hosts, strings.TrimSuffix(strings.TrimPrefix(n.URL, "amqp://guest:guest@"), "/"))
	}
	const queue = "orders"
	eventually(t, "the nodes are one cluster", func() bool {
		n, err := nodes[0].Ctl("eval", "length(rabbit_mnesia:cluster_nodes(running)).")
		t.Logf("nodes that run: %s %v", n, err)
		return err == nil && strings.TrimSpace(n) == "3"
	})
	if err := declareQuorum(nodes[0].URL, queue); err != nil {
		t.Fatal(err)
	}
	t.Log(nodes[0].Ctl("list_queues", "--quiet", "name", "type", "members", "online"))
	relay := l.relay("retry_max: 1s", "amqp://guest:guest@"+strings.Join(hosts, ",")+"/?routing_key="+queue)
	flows := func() {
		t.Helper()
		s, _ := subscriptionOf(t, l.database, l.outbox, "")
		awaitSubscription(t, l.database, l.outbox, "", "messages flow", func(now admin.SubscriptionStatus) bool { return now.Settled > s.Settled+50 })
	}
	stop := l.keepWriting("entry", 2)
	for round := range 6 {
		flows()
		node := nodes[round%len(nodes)]
		if err := node.Kill(); err != nil {
			t.Fatal(err)
		}
		flows()
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		flows()
	}
	stop()
	l.end(relay)
	readThroughInbox(t, l, nodes[0].URL, queue)()
	gone := l.vanished(l.database)
	l.mustBeSound(l.database, "rabbitmq", gone)
	l.mustBeSound(l.database, "inbox", gone)
}

// declareQuorum creates a quorum queue with a member on each of three nodes.
func declareQuorum(broker, name string) error {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 3})
	return err
}

// A relay that is stopped while RabbitMQ blocks publishers ends after its drain timeout,
// however long a Send may take. It gives its lease back, and has settled nothing that RabbitMQ
// does not have.
func TestTopologyRabbitMQBlocked(t *testing.T) {
	topology(t)
	l := newOrders(t)
	broker := testserver.StartRabbitMQ(t)
	queue := queueFor(t, broker.URL)
	finish := readThroughInbox(t, l, broker.URL, queue)
	const settings = "lease: 1h, send_timeout: 1h, drain_timeout: 2s"
	relay := l.relay(settings, broker.URL+"?routing_key="+queue)
	l.write("before", 50)
	eventually(t, "what was written before has come", func() bool { return l.has("before-49", "rabbitmq") })
	watermark := func(share string) {
		t.Helper()
		if _, err := broker.Ctl("set_vm_memory_high_watermark", share); err != nil {
			t.Fatal(err)
		}
	}
	watermark("0.0000001")
	l.write("meanwhile", 50)
	eventually(t, "RabbitMQ blocks the relay", func() bool {
		states, err := broker.Ctl("list_connections", "--quiet", "state")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(states, "blocked")
	})
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 && o.code != 130 {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	watermark("0.4")
	relay = l.relay(settings, broker.URL+"?routing_key="+queue)
	eventually(t, "the next relay brings the rest, without waiting for the lease", func() bool { return l.has("meanwhile-49", "rabbitmq") })
	l.end(relay)
	finish()
	l.mustBeSound(l.database, "rabbitmq", nil)
}

// A full stream means that the broker accepts nothing, not that a message is bad. No attempt is
// spent, and everything is delivered in order once there is room.
func TestTopologyFullStream(t *testing.T) {
	topology(t)
	for _, kind := range []string{"server", "embedded"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newOrders(t)
			const room = 50
			l.keys = nil
			for i := range times(10, 500) {
				l.keys = append(l.keys, fmt.Sprint("key ", i))
			}
			limit := func(s *natsStream, messages int64) {
				t.Helper()
				s.with(t, func(ctx context.Context, js jetstream.JetStream) error {
					_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: s.name, Subjects: []string{"orders"}, Duplicates: time.Hour,
						MaxMsgs: messages, Discard: jetstream.DiscardNew})
					return err
				})
			}
			var relay *process
			var stream *natsStream
			if kind == "server" {
				stream = deduplicatingStream(t)
				limit(stream, room)
				relay = l.relay("retry_max: 1s", stream.url+"?subject=orders")
			} else {
				port, err := testserver.FreePort()
				if err != nil {
					t.Fatal(err)
				}
				listen := fmt.Sprintf("127.0.0.1:%d", port)
				stream = &natsStream{url: "nats://" + listen, name: "orders"}
				relay = l.relay("retry_max: 1s", "embedded:"+t.TempDir()+"?create_stream.name=orders&create_stream.subjects=orders&subject=orders&listen="+listen)
				relay.says("relaying")
				limit(stream, room)
			}
			entries := times(400, 5000)
			l.write("entry", entries)
			eventually(t, "the stream is full", func() bool { n, err := stream.count(t); return err == nil && n == room })
			relay.says("level=WARN")
			s, _ := subscriptionOf(t, l.database, l.outbox, "")
			t.Logf("while it is full: %+v", s)
			limit(stream, -1)
			eventually(t, "all messages are there", func() bool { n, err := stream.count(t); return err == nil && n == uint64(entries) })
			stream.read(t, l, "stream")
			l.end(relay)
			l.mustBeSound(l.database, "stream", nil)
			if stream.again > 0 {
				t.Errorf("of %d messages an attempt was counted that found no room", stream.again)
			}
			if out := must(t, "dead", "list", l.outbox, "--database-url", l.database); !strings.Contains(out, "0 dead letters") {
				t.Errorf("dead letters: %s", out)
			}
		})
	}
}

// Three NATS servers have a stream. Its leader is killed again and again.
func TestTopologyNATSCluster(t *testing.T) {
	topology(t)
	l := newOrders(t)
	cluster := startNATSCluster(t)
	relay := l.relay("retry_max: 1s", cluster.url+"?subject=orders")
	stop := l.keepWriting("entry", 2)
	for range times(2, 12) {
		leader := -1
		eventually(t, "a leader is followed by two", func() (ok bool) {
			var following int
			leader, following = cluster.leader(t)
			return leader >= 0 && following == 2
		})
		flows := func() {
			t.Helper()
			var before uint64
			eventually(t, "messages flow", func() bool {
				now, err := cluster.count(t)
				if err == nil && before == 0 {
					before = now
				}
				return err == nil && now > before+50
			})
		}
		flows()
		if err := cluster.nodes[leader].Kill(); err != nil {
			t.Fatal(err)
		}
		flows()
		if err := cluster.nodes[leader].Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	l.end(relay)
	cluster.read(t, l, "stream")
	l.mustBeSound(l.database, "stream", l.vanished(l.database))
}

// Three Kafka brokers, which are killed one after another.
func TestTopologyKafkaCluster(t *testing.T) {
	if !testserver.HasKafka() {
		t.Skip("there is no Apache Kafka: make test-topologies fetches it")
	}
	topology(t)
	l := newOrders(t)
	brokers := testserver.StartKafkaCluster(t, 3)
	var hosts []string
	for _, b := range brokers {
		hosts = append(hosts, strings.TrimPrefix(b.URL, "kafka://"))
	}
	sink, finish := readBack(t, l, "kafka://"+strings.Join(hosts, ","), "kafka")
	relay := l.relay("retry_max: 1s", sink)
	stop := l.keepWriting("entry", 2)
	for round := range times(3, 9) {
		flows := func() {
			t.Helper()
			before := l.count("kafka")
			eventually(t, "messages flow", func() bool { return l.count("kafka") > before+50 })
		}
		flows()
		broker := brokers[round%len(brokers)]
		if err := broker.Kill(); err != nil {
			t.Fatal(err)
		}
		flows()
		if err := broker.Start(); err != nil {
			t.Fatal(err)
		}
		flows()
	}
	stop()
	l.end(relay)
	finish()
	l.mustBeSound(l.database, "kafka", l.vanished(l.database))
}
