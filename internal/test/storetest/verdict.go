package storetest

import (
	"fmt"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

const (
	// soon is when a test awaits parked messages, never when they must not come.
	soon = time.Millisecond
	// notInThisTest is when parked messages must not come.
	notInThisTest = 24 * time.Hour
)

// failures are n attempts with m that were refused. Stores may keep times only
// to the millisecond.
func failures(m penstock.Message, n int, reason string) []penstock.Failure {
	fs := make([]penstock.Failure, n)
	for i := range fs {
		fs[i] = penstock.Failure{Attempt: m.Attempt + i, At: time.Now().UTC().Truncate(time.Millisecond), Err: fmt.Sprintf("%s, attempt %d", reason, m.Attempt+i)}
	}
	return fs
}

// dead is the verdict on a message that was refused once, permanently.
func dead(reason string) driver.Verdict {
	return driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: reason}}}
}

// holding is the verdict on a message that died and keeps its key waiting.
func holding(m penstock.Message) driver.Verdict {
	return driver.Verdict{Outcome: driver.Dead, Hold: true, Failures: failures(m, 1, "holds")}
}

// refused is the verdict on a message that was refused once and is parked.
func refused(m penstock.Message, in time.Duration) driver.Verdict {
	return driver.Verdict{Outcome: driver.Parked, RetryIn: in, Failures: failures(m, 1, "refused")}
}

// behind is the verdict on a message that is parked unsent.
var behind = driver.Verdict{Outcome: driver.Parked}

// verdicts by payload; what is not named was delivered.
type verdicts map[string]driver.Verdict

// judge settles batches in one call.
func (r *reader) judge(v verdicts, batches ...driver.Batch) {
	r.e.Must(r.Settle(r.e.ctx, judged(v, batches...)...), "Settle")
}

func judged(v verdicts, batches ...driver.Batch) []driver.Settled {
	settled := delivered(batches...)
	for i, b := range batches {
		settled[i].Verdicts = make([]driver.Verdict, len(b.Messages))
		for k, m := range b.Messages {
			settled[i].Verdicts[k] = v[string(m.Payload)]
		}
	}
	return settled
}

// await returns the next batch with messages.
func (r *reader) await(limit driver.Limit) (b driver.Batch) {
	r.e.Eventually("something is due", func() bool {
		b = r.fetch(limit)
		return len(b.Messages) > 0
	})
	return b
}

// awaitOnly awaits a batch of exactly these payloads, in this order, that stand
// so to others of their keys.
func (r *reader) awaitOnly(how driver.KeyOrder, payloads ...string) driver.Batch {
	b := r.await(plenty)
	r.e.wantOrder(b, how, payloads...)
	return b
}

// wantOrder compares a whole batch, in order.
func (e *env) wantOrder(b driver.Batch, how driver.KeyOrder, want ...string) {
	e.wantInOrder(b.Messages, want...)
	for i, m := range b.Messages {
		suite.MustEqual(e, b.Order(i), how, "order of %.40q", m.Payload)
	}
}

func (e *env) wantInOrder(msgs []penstock.Message, want ...string) {
	got := payloads(msgs)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			e.Fatalf("got %d messages, want %d; they differ from number %d\n got: %s\nwant: %s",
				len(got), len(want), i, brief(got[min(i, len(got)):]), brief(want[min(i, len(want)):]))
		}
	}
}

// wantNext compares attempt, first failure and content of what comes again.
func (e *env) wantNext(got, before penstock.Message, attempt int, since time.Time) {
	if got.Attempt != attempt || !got.FailedSince.Equal(since) {
		e.Errorf("%.40q came with attempt %d and failed since %s, want %d and %s", got.Payload, got.Attempt, got.FailedSince, attempt, since)
	}
	before.Attempt = attempt
	e.sameMessage(got, before)
}

func (e *env) parkedKeys(r *reader) []admin.ParkedKey {
	return suite.Get(e.Store.ParkedKeys(e.ctx, r.req.Outbox, r.req.Subscription, 10_000)).Must(e, "ParkedKeys")
}

// wantParked compares the status of parked messages.
func (e *env) wantParked(r *reader, parked, keys, held int64) {
	s := e.subscriptionStatus(r.req)
	if s.Parked != parked || s.ParkedKeys != keys || s.HeldKeys != held {
		e.Fatalf("status: %d parked in %d keys, %d of them held; want %d, %d, %d", s.Parked, s.ParkedKeys, s.HeldKeys, parked, keys, held)
	}
	if held == 0 && (s.ParkedAge > 0) != (parked > 0) || s.ParkedAge < 0 || s.ParkedAge > 2*time.Hour {
		e.Fatalf("status: %d are parked, the oldest for %s", parked, s.ParkedAge)
	}
	suite.MustEqual(e, int64(len(e.parkedKeys(r))), keys, "parked keys")
}

// keyed makes messages of one key with the payloads key0, key1, …
func keyed(key string, from, to int) []penstock.Message {
	var msgs []penstock.Message
	for i := from; i < to; i++ {
		msgs = append(msgs, message(key, fmt.Sprint(key, i)))
	}
	return msgs
}
