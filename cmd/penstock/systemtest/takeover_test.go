package systemtest

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
)

// held is the status of the only subscription.
type held = admin.SubscriptionStatus

// holder waits until a relay has the lease, or the named one. On a busy machine a lease may end before it is renewed.
func (l *line) holder(name string) held {
	l.t.Helper()
	return awaitSubscription(l.t, l.database, l.outbox, "", "a relay has the lease", func(s held) bool {
		return s.Holder != "" && (name == "" || s.Holder == name)
	})
}

// named starts a relay that status shows under the name.
func (l *line) named(name string) *process {
	l.t.Helper()
	return start(l.t, "relay", "--config", l.config, "--holder", name)
}

// checkTaken requires that the lease still has its holder, or was taken only after it had ended.
func checkTaken(t *testing.T, before, now held) {
	t.Helper()
	if now.Epoch != before.Epoch && now.HolderSince.Before(before.LeaseUntil) || now.Epoch < before.Epoch || now.Epoch == before.Epoch && now.Holder != before.Holder {
		t.Errorf("the lease was %+v and is %+v", before, now)
	}
}

// pair starts two relays and returns when the first has the lease and the second is on standby.
func pair(t *testing.T, l *line) (first, second *process) {
	t.Helper()
	first = l.named("first")
	first.says("took the lease")
	second = l.named("second")
	second.says("standing by")
	return first, second
}

// After kill -9 the other relay takes over without help, and not before the lease has ended.
func TestTakeoverAfterKill(t *testing.T) {
	t.Parallel()
	l := postgresLine(t, 600, 3*time.Second)
	l.startReading()
	first, second := pair(t, l)
	committed := l.startProducing(l.flights)
	l.awaitArrivals(100)
	before, killed := l.holder(""), time.Now()
	first.kill()
	now := l.holder("second")
	t.Logf("the lease is 3 s; it took %s", now.HolderSince.Sub(killed))
	checkTaken(t, before, now)
	committed()
	relayed(t, l.database, l.outbox)
	second.signal(syscall.SIGTERM)
	second.wait()
	l.check()
}

// A relay that ends normally gives its lease back: the other one does not wait until it would have
// expired.
func TestTakeoverAfterStop(t *testing.T) {
	t.Parallel()
	l := postgresLine(t, 600, longLease)
	l.startReading()
	first, second := pair(t, l)
	committed := l.startProducing(l.flights)
	l.awaitArrivals(100)
	before := l.holder("")
	first.signal(syscall.SIGTERM)
	if o := first.wait(); o.code != 0 {
		t.Fatalf("the first relay ended with %d: %s", o.code, first.stderr.tail())
	}
	after := l.holder("second")
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

// A relay that was paused for longer than its lease finds, when it continues, that it can no longer move
// the cursor. It is then on standby.
func TestPausedRelayIsFenced(t *testing.T) {
	t.Parallel()
	l := postgresLine(t, 900, shortLease)
	l.startReading()
	shares := l.shares(3)
	first, second := pair(t, l)
	committed := l.startProducing(shares[0])
	l.awaitArrivals(len(shares[0]) / 3)

	first.signal(syscall.SIGSTOP)
	committed()
	relayed(t, l.database, l.outbox) // by the second
	before := l.holder("")           // which may also lose it on a busy machine, but not before it has ended
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
	after := l.holder("")
	checkTaken(t, before, after)
	if after.Settled < before.Settled {
		t.Errorf("%d were settled before the paused relay went on, %d are", before.Settled, after.Settled)
	}

	// It is still usable.
	committed = l.startProducing(shares[2])
	second.kill()
	committed()
	relayed(t, l.database, l.outbox)
	if now := l.holder(""); now.Holder != "first" || now.Epoch <= before.Epoch {
		t.Errorf("after the second was killed the lease is %+v", now)
	}
	first.signal(syscall.SIGTERM)
	if o := first.wait(); o.code != 0 {
		t.Errorf("the first relay ended with %d: %s", o.code, first.stderr.tail())
	}
	l.check()
}
