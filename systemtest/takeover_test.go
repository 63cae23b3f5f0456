package systemtest

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

// held is what status says about the lease of the only subscription.
type held struct {
	Holder      string    `json:"holder"`
	HolderSince time.Time `json:"holder_since"`
	LeaseUntil  time.Time `json:"lease_until"`
	Epoch       int64     `json:"epoch"`
	Settled     int64     `json:"settled"`
}

// leaseOf waits until somebody has the lease: on a busy machine it may have ended before it was renewed.
func leaseOf(t testing.TB, l *line) (h held) {
	t.Helper()
	eventually(t, "a relay has the lease", func() bool {
		var all struct {
			Outboxes []struct{ Subscriptions []held }
		}
		out := must(t, "status", l.outbox, "--json", "--database-url", l.database)
		if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Outboxes) != 1 || len(all.Outboxes[0].Subscriptions) != 1 {
			t.Fatalf("status --json: %v: %s", err, out)
		}
		h = all.Outboxes[0].Subscriptions[0]
		return h.Holder != ""
	})
	return h
}

// named starts a relay that status shows under the name.
func (l *line) named(name string) *process {
	l.t.Helper()
	return start(l.t, "relay", "--config", l.config, "--holder", name)
}

// checkTaken wants the lease to be whose it was, or to have been taken only after it had ended.
func checkTaken(t *testing.T, before, now held) {
	t.Helper()
	if now.Epoch != before.Epoch && now.HolderSince.Before(before.LeaseUntil) || now.Epoch < before.Epoch || now.Epoch == before.Epoch && now.Holder != before.Holder {
		t.Errorf("the lease was %+v and is %+v", before, now)
	}
}

// pair starts two relays and returns when the first has the lease and the second
// stands by.
func pair(t *testing.T, l *line) (first, second *process) {
	t.Helper()
	first = l.named("first")
	first.says("took the lease")
	second = l.named("second")
	second.says("standing by")
	return first, second
}

// After kill -9 the other relay takes over without being told, and not before the lease has ended.
func TestTakeoverAfterKill(t *testing.T) {
	l := postgresLine(t, 2_000, 3*time.Second)
	l.startReading()
	first, second := pair(t, l)
	committed := l.startProducing(l.flights)
	l.awaitArrivals(100)
	before, killed := leaseOf(t, l), time.Now()
	first.kill()
	eventually(t, "the second relay has the lease", func() bool { return leaseOf(t, l).Holder == "second" })
	now := leaseOf(t, l)
	t.Logf("the lease is 3 s; it took %s", now.HolderSince.Sub(killed))
	checkTaken(t, before, now)
	committed()
	relayed(t, l.database, l.outbox)
	second.signal(syscall.SIGTERM)
	second.wait()
	l.check()
}

// A relay that ends in order gives its lease back: the other one does not wait
// until it would have ended.
func TestTakeoverAfterStop(t *testing.T) {
	l := postgresLine(t, 2_000, longLease)
	l.startReading()
	first, second := pair(t, l)
	committed := l.startProducing(l.flights)
	l.awaitArrivals(100)
	before := leaseOf(t, l)
	first.signal(syscall.SIGTERM)
	if o := first.wait(); o.code != 0 {
		t.Fatalf("the first relay ended with %d: %s", o.code, first.stderr.tail())
	}
	eventually(t, "the second relay has the lease", func() bool { return leaseOf(t, l).Holder == "second" })
	after := leaseOf(t, l)
	if !after.HolderSince.Before(before.LeaseUntil) {
		t.Errorf("the second relay has the lease since %s; the first one's would have ended at %s anyway", after.HolderSince, before.LeaseUntil)
	}
	if after.Epoch <= before.Epoch {
		t.Errorf("the epoch went from %d to %d", before.Epoch, after.Epoch)
	}
	committed()
	relayed(t, l.database, l.outbox)
	second.signal(syscall.SIGTERM)
	second.wait()
	if checked := l.check(); checked.Duplicates != 0 {
		t.Errorf("%d messages arrived twice though the lease was handed over", checked.Duplicates)
	}
}

// A relay that was stopped for longer than its lease finds, when it goes on, that
// it can no longer move the cursor, and stands by.
func TestPausedRelayIsFenced(t *testing.T) {
	l := postgresLine(t, 6_000, shortLease)
	l.startReading()
	shares := l.shares(3)
	first, second := pair(t, l)
	committed := l.startProducing(shares[0])
	l.awaitArrivals(len(shares[0]) / 3)

	first.signal(syscall.SIGSTOP)
	committed()
	relayed(t, l.database, l.outbox) // by the second
	before := leaseOf(t, l)          // which may lose it, too, on a busy machine, but not before it has ended
	if before.Holder != "second" {
		t.Fatalf("%q has the lease", before.Holder)
	}

	first.signal(syscall.SIGCONT)
	committed = l.startProducing(shares[1])
	first.await("word that it has lost the lease", func() bool {
		return strings.Contains(first.stderr.String(), "held by another relay") || strings.Contains(first.stderr.String(), "lease was lost")
	})
	committed()
	relayed(t, l.database, l.outbox)
	after := leaseOf(t, l)
	checkTaken(t, before, after)
	if after.Settled < before.Settled {
		t.Errorf("%d were settled before the paused relay went on, %d are", before.Settled, after.Settled)
	}

	// It is still of use.
	committed = l.startProducing(shares[2])
	second.kill()
	committed()
	relayed(t, l.database, l.outbox)
	if now := leaseOf(t, l); now.Holder != "first" || now.Epoch <= before.Epoch {
		t.Errorf("after the second was killed the lease is %+v", now)
	}
	first.signal(syscall.SIGTERM)
	if o := first.wait(); o.code != 0 {
		t.Errorf("the first relay ended with %d: %s", o.code, first.stderr.tail())
	}
	l.check()
}
