package systemtest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// An asynchronous standby is promoted after some WAL was lost. Messages of transactions on the survivor reach consumers
// that drop known ids, in JetStream and by an inbox, and a consumer that keeps their order. No id of a delivered message
// is used again. The number of a lease is not used again either, so an earlier worker ends no other job.
func TestTopologyLostWAL(t *testing.T) {
	topology(t)
	cluster := startCluster(t)
	for _, args := range [][]string{{"migrate"}, {"outbox", "create", "orders"}, {"queue", "create", "jobs"}} {
		must(t, append(args, "--database-url", cluster.url)...)
	}
	l := newLedger(t, cluster.url, "orders")
	broker := testserver.RabbitMQURL(t)
	queue := queueFor(t, broker)
	stream := deduplicatingStream(t)
	config := filepath.Join(t.TempDir(), "penstock.yaml")
	content := fmt.Sprintf(`
database_url: %q
relay: {lease: 2s}
subscriptions:
  - {name: stream, outbox: orders, sink: {nats: {url: %q, subject: orders}}}
  - {name: inbox, outbox: orders, previous: true, sink: {rabbitmq: {url: %q, routing_key: %s}}}
`, cluster.url, stream.url, broker, queue)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	relay := start(t, "relay", "--config", config)
	finish := readThroughInbox(t, l, broker, queue)
	consumers := []string{"rabbitmq", "inbox", "ordered"}

	gone := map[string]bool{} // entries that were committed and no longer exist
	leases := map[int64]bool{}
	for round := range times(2, 6) {
		name := func(what string) string { return fmt.Sprintf("round %d %s", round, what) }
		l.write(name("kept"), 100)
		eventually(t, "what will be kept is delivered", func() bool { return l.has(name("kept")+"-99", consumers...) })
		withJobs(t, cluster.url, func(q driver.Queue) error {
			_, err := q.Enqueue(t.Context(), make([]penstock.NewJob, 400)...)
			return err
		})

		cluster.cutOff()
		doomed := times(200, 1000)
		l.write(name("lost"), doomed)
		late := claimed(t, cluster.url, 100) // by a worker that does not learn of the failover
		eventually(t, "what will be lost is delivered", func() bool { return l.has(fmt.Sprintf("%s-%d", name("lost"), doomed-1), consumers...) })
		lost := entriesOf(t, l.database)
		cluster.promote()
		kept := entriesOf(t, l.database)
		for entry := range lost {
			if !kept[entry] {
				gone[entry] = true
			}
		}

		l.write(name("after"), times(300, 1500))
		mine := claimed(t, cluster.url, 200)
		again := 0
		for _, lease := range append(late, mine...) {
			if leases[lease] {
				again++
			}
			leases[lease] = true
		}
		if again > 0 {
			t.Errorf("round %d: %d numbers of leases came again", round, again)
		}
		if ended := ack(t, cluster.url, late...); len(ended) > 0 {
			t.Errorf("round %d: late acks from before the failover ended %d leases of another worker", round, len(ended))
		}
		if ended := ack(t, cluster.url, mine...); len(ended) != len(mine) {
			t.Errorf("round %d: %d of %d leases could be ended by their holder", round, len(ended), len(mine))
		}
		ack(t, cluster.url, claimed(t, cluster.url, 200)...)
		relayed(t, cluster.url, "orders")
	}
	if len(gone) == 0 {
		t.Error("no WAL was lost: nothing was put to the test")
	}
	relay.signal(syscall.SIGTERM)
	if o := relay.wait(); o.code != 0 {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	stream.read(t, l, "stream")
	for _, s := range []string{"stream", "inbox"} {
		if sub, _ := subscriptionOf(t, cluster.url, "orders", s); sub.Backlog != 0 {
			t.Errorf("%s has a backlog of %d", s, sub.Backlog)
		}
	}
	t.Logf("%d entries were lost with WAL, in %d failovers", len(gone), cluster.promotions)
	finish()
	for _, c := range []string{"stream", "rabbitmq", "inbox", "ordered"} {
		l.mustBeSound(cluster.url, c, gone)
	}
}

// withJobs uses the queue "jobs".
func withJobs(t testing.TB, database string, do func(driver.Queue) error) {
	t.Helper()
	store, err := postgres.Open(t.Context(), database, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := do(store.Queue("jobs")); err != nil {
		t.Fatal(err)
	}
}

// claimed claims n jobs and returns their leases.
func claimed(t testing.TB, database string, n int) (leases []int64) {
	t.Helper()
	withJobs(t, database, func(q driver.Queue) error {
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: n, Lease: time.Hour, Worker: "w"})
		for _, j := range jobs {
			leases = append(leases, j.Lease)
		}
		if err == nil && len(jobs) != n {
			err = fmt.Errorf("%d jobs could be claimed, want %d", len(jobs), n)
		}
		return err
	})
	return leases
}

// ack ends leases and returns those that were held.
func ack(t testing.TB, database string, leases ...int64) (ended []int64) {
	t.Helper()
	withJobs(t, database, func(q driver.Queue) (err error) {
		ended, err = q.Ack(t.Context(), leases...)
		return err
	})
	return ended
}
