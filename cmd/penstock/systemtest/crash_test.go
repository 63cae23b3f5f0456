package systemtest

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/testseed"
)

// A killed relay loses nothing and keeps the order. Messages that it had sent and not yet settled
// arrive again.
func TestKilledRelayPostgresToRabbitMQ(t *testing.T) {
	t.Parallel()
	killRelays(t, postgresLine(t, 600*kills(), shortLease))
}

func TestKilledRelaySQLiteToNATS(t *testing.T) {
	t.Parallel()
	killRelays(t, sqliteLine(t, 600*kills(), shortLease))
}

// kills is how many relays are killed one after another.
func kills() int { return testseed.Steps(8) }

// killRelays kills one relay after another under load. The moment is random: a number of arrivals
// after the relay began to deliver, plus some microseconds. So the relay is sometimes sending and
// sometimes settling.
func killRelays(t *testing.T, l *line) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)

	l.startReading()
	committed := func() {}
	for _, flights := range l.shares(kills()) {
		committed()
		seen := l.count()
		committed = l.startProducing(flights)
		relay := l.relay()
		relay.says("lease=" + shortLease.String()) // it has the lease
		l.awaitArrivals(seen + 1 + random.IntN(len(flights)/2))
		time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond) // chaos, not a condition
		relay.kill()
	}
	committed()
	last := l.relay()
	last.says("took the lease") // it may have nothing to do, and handles signals by then
	relayed(t, l.database, l.outbox)
	last.signal(syscall.SIGTERM)
	if o := last.wait(); o.code != 0 {
		t.Errorf("the last relay ended with %d: %s", o.code, last.stderr.tail())
	}
	l.check()
}

// A relay that is stopped sends nothing that the next one sends again.
func TestDrainedRelaySendsNothingTwice(t *testing.T) {
	t.Parallel()
	drains := testseed.Steps(6)
	l := postgresLine(t, 600*drains, longLease)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)

	l.startReading()
	committed := func() {}
	for _, flights := range l.shares(drains) {
		committed()
		seen := l.count()
		committed = l.startProducing(flights)
		relay := l.relay()
		relay.says("took the lease") // arrivals may be the previous relay's, and this one may not handle signals yet
		l.awaitArrivals(seen + 1 + random.IntN(len(flights)/2))
		relay.signal([]syscall.Signal{syscall.SIGTERM, syscall.SIGINT}[random.IntN(2)])
		if o := relay.wait(); o.code != 0 {
			t.Fatalf("a drained relay ended with %d: %s", o.code, relay.stderr.tail())
		}
		relay.says("draining")
	}
	committed()
	last := l.relay()
	last.says("took the lease") // it may have nothing to do, and handles signals by then
	relayed(t, l.database, l.outbox)
	last.signal(syscall.SIGTERM)
	last.wait()
	if checked := l.check(); checked.Duplicates != 0 {
		t.Errorf("%d messages arrived twice though every relay was drained", checked.Duplicates)
	}
}
