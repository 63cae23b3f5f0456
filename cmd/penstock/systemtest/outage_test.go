package systemtest

import (
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
)

// through puts a proxy in front of the server in rawURL.
func through(t testing.TB, rawURL string) (*tcpproxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	p := tcpproxy.New(t, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}

func TestDatabaseDownAtStart(t *testing.T) {
	t.Parallel()
	direct := ordersDatabase(t)
	publish(t, direct, "orders", "hello")

	proxy, database := through(t, direct)
	proxy.Refuse()
	for _, verb := range []string{"status", "demo --limit 1"} {
		o := pen(t, append(strings.Fields(verb), "--database-url", database)...)
		if o.code != 4 || !strings.HasPrefix(o.stderr, "penstock: ") || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, "reachable?") {
			t.Errorf("%s: exit code %d, stderr %q", verb, o.code, o.stderr)
		}
	}

	relay := start(t, "relay", "--outbox", "orders", "--sink", "stdout", "--database-url", database)
	relay.says("tries until it can") // it reports it,
	proxy.Resume()                   // and continues once the database is back
	relay.await("the message on stdout", func() bool { return strings.Contains(relay.stdout.String(), `"payload":"hello"`) })
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 || strings.Count(o.stdout, "\n") != 1 {
		t.Errorf("exit code %d, stdout %q", o.code, o.stdout)
	}
}

func TestDatabaseLostWhileRelaying(t *testing.T) {
	t.Parallel()
	direct := ordersDatabase(t)
	proxy, database := through(t, direct)

	relay := start(t, "relay", "--outbox", "orders", "--sink", "stdout", "--database-url", database)
	publish(t, direct, "orders", "before")
	relay.await("the first message", func() bool { return strings.Contains(relay.stdout.String(), "before") })
	proxy.Refuse()
	relay.says("level=WARN")
	publish(t, direct, "orders", "meanwhile")
	proxy.Resume()
	relay.await("the second message", func() bool { return strings.Contains(relay.stdout.String(), "meanwhile") })
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("exit code %d", o.code)
	}
}

func TestBrokerDownAtStart(t *testing.T) {
	t.Parallel()
	l := postgresLine(t, testseed.Steps(2_000), longLease)
	proxy, sink := through(t, l.broker.SinkURL())
	proxy.Refuse()
	l.startReading()
	l.startProducing(l.flights)()

	relay := start(t, "relay", "--outbox", l.outbox, "--database-url", l.database, "--sink", sink)
	relay.says("level=WARN")
	if s, ok := subscriptionOf(t, l.database, l.outbox, ""); ok && s.Settled != 0 {
		t.Errorf("%d messages are settled while the broker is down", s.Settled)
	}
	proxy.Resume()
	relayed(t, l.database, l.outbox)
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("exit code %d", o.code)
	}
	l.check()
}

// A RabbitMQ server that dies in between keeps the messages that it has confirmed, and the relay
// delivers the others when it is back.
func TestBrokerKilledWhileRelaying(t *testing.T) {
	testseed.Soak(t)
	t.Parallel()
	database := postgrestest.Database(t)
	server := testserver.StartRabbitMQ(t)
	l := newLine(t, database, server.URL, testseed.Steps(6_000), longLease)
	l.airline = postgresAirline(t, database)
	l.startReading()
	committed := l.startProducing(l.flights)
	relay := l.relay()
	l.awaitArrivals(500)
	server.Kill()
	relay.says("level=WARN")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	committed()
	relayed(t, l.database, l.outbox)
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("exit code %d", o.code)
	}
	l.check()
}

// A relay that is stopped while the broker is down does not wait for it for long. A second
// signal ends it at once.
func TestStoppingWhileTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	database := ordersDatabase(t)
	publish(t, database, "orders", "")
	proxy, sink := through(t, testserver.RabbitMQURL(t))
	proxy.Refuse()

	relay := start(t, "relay", "--outbox", "orders", "--sink", sink, "--database-url", database)
	relay.says("level=WARN")
	relay.signal(syscall.SIGTERM)
	relay.says("draining")
	relay.signal(syscall.SIGTERM)
	// The drain may have ended before the second signal came.
	if o := relay.wait(); o.code != 0 && o.code != 130 {
		t.Errorf("exit code %d", o.code)
	}
	if s, ok := subscriptionOf(t, database, "orders", ""); !ok || s.Backlog != 1 || s.Settled != 0 {
		t.Errorf("the message is not waiting: %+v", s)
	}
}

// A second signal does not wait for a broker that received a message and does not answer.
func TestHurrying(t *testing.T) {
	t.Parallel()
	l := postgresLine(t, 1, longLease)
	proxy, sink := through(t, l.broker.SinkURL())
	relay := start(t, "relay", "--outbox", l.outbox, "--database-url", l.database, "--sink", sink)
	publish(t, l.database, l.outbox, "answered")
	relayed(t, l.database, l.outbox)
	proxy.Stall(tcpproxy.ToClient)
	publish(t, l.database, l.outbox, "unanswered")
	eventually(t, "both messages in their queue", func() bool { return queueLength(t, testserver.RabbitMQURL(t), l.queue) == 2 })

	relay.signal(syscall.SIGTERM)
	relay.says("draining")
	time.Sleep(600 * time.Millisecond) // an earlier signal counts as the first one again
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 130 || !strings.Contains(o.stderr, "stopping at once") {
		t.Errorf("exit code %d", o.code)
	}
	if s, ok := subscriptionOf(t, l.database, l.outbox, ""); !ok || s.Backlog != 1 {
		t.Errorf("the message without a confirmation is not waiting: %+v", s)
	}
}
