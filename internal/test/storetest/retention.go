package storetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var retentionCases = slices.Concat(
	named("Retention", retentionKeepsWhatIsSettled, retentionBytesKeepTheLatest,
		retentionNeverTakesWhatIsUnsettled, retentionUpToTheLimits),
	needing(Features{Reclaim: true}, named("Retention", retentionLetsGo)),
	needing(Features{Reclaim: true, SmallPieces: true}, named("Retention", retentionBytesBoundTheSpace)),
)

func (e *env) retain(r admin.Retention) {
	e.Must(e.Store.SetRetention(e.ctx, outbox, r), "SetRetention")
	suite.Equal(e, e.outboxStatus(outbox).Retention, r, "retention of the status")
}

// settleBulk publishes n MiB and settles them, with housekeeping on the way.
func (e *env) settleBulk(r *reader, part, n int) (sent []penstock.Message) {
	for i := range n {
		e.bulk(100*part+i, 1)
		for _, b := range r.drain(driver.Limit{Messages: 10, Bytes: 1 << 20}) {
			sent = append(sent, b.Messages...)
			r.settle(b)
		}
		e.maintain()
	}
	return sent
}

func retentionKeepsWhatIsSettled(e *env) {
	e.retain(admin.Retention{Age: notInThisTest})
	r := e.read()
	sent := e.settleBulk(r, 0, 3)
	for range 5 {
		e.maintain()
	}
	e.replay(r, admin.Replay{}, len(sent))
	e.wantReplay(r.again(), driver.Limit{Messages: 10, Bytes: 1 << 20}, sent...)
}

// Zero keeps nothing, and older messages go, though Bytes has room for them.
func retentionLetsGo(e *env) {
	r := e.read()
	floor := e.outboxStatus(outbox).Bytes
	for part, then := range []admin.Retention{{}, {Age: time.Millisecond}, {Age: time.Millisecond, Bytes: 1 << 40}} {
		e.retain(admin.Retention{Age: notInThisTest, Bytes: 1 << 40})
		e.settleBulk(r, part, 4)
		e.grows(floor)
		e.retain(then)
		e.shrinks(floor)
		e.replay(r, admin.Replay{}, 0)
	}
}

// The latest messages are kept as far as Bytes goes. How much more is kept
// depends on the pieces that a store frees.
func retentionBytesKeepTheLatest(e *env) {
	r := e.read()
	e.retain(admin.Retention{Bytes: 2 << 20})
	sent := e.settleBulk(r, 0, 6)
	for range 5 {
		e.maintain()
	}
	// Half of it, because a store counts its indexes and half-empty pages too.
	last := sent[len(sent)-32:]
	e.replay(r, admin.Replay{FromSeq: last[0].Seq}, len(last))
	e.wantReplay(r, plenty, last...)
}

// The space is bounded, roughly: whole pieces are freed, and indexes count too.
func retentionBytesBoundTheSpace(e *env) {
	r := e.read()
	floor := e.outboxStatus(outbox).Bytes
	e.retain(admin.Retention{Bytes: 1 << 20})
	for round := range 3 {
		e.settleBulk(r, round, 4)
		e.shrinks(floor + 2<<20)
	}
}

func retentionNeverTakesWhatIsUnsettled(e *env) {
	slow := e.subscribe(driver.Subscribe{Subscription: "slow"})
	fast := e.read()
	e.retain(admin.Retention{Age: time.Millisecond, Bytes: 1})
	first := slow.fetch(two)
	sent := e.settleBulk(fast, 0, 3)
	slow.settle(first)
	for range 5 {
		e.maintain()
	}
	slow.close()
	e.maintain()
	slow = e.subscribe(slow.req)
	batches := slow.drain(driver.Limit{Messages: 10, Bytes: 1 << 20})
	e.wantInOrder(flatten(batches), payloads(sent)...)
	slow.settle(batches...)
	slow.again().want()
}

func retentionUpToTheLimits(e *env) {
	want := admin.Retention{Age: 36*time.Hour + time.Millisecond, Bytes: 1 << 40}
	e.retain(want)
	for _, bad := range []admin.Retention{{Age: -1}, {Age: time.Microsecond - 1}, {Bytes: -1}, {Age: -time.Hour, Bytes: 1}, {Age: time.Hour, Bytes: math.MinInt64}} {
		e.BadField(fmt.Sprintf("SetRetention(%+v)", bad), e.Store.SetRetention(e.ctx, outbox, bad), "retention")
	}
	suite.Equal(e, e.outboxStatus(outbox).Retention, want, "retention of the status")
	for _, good := range []admin.Retention{{}, {Age: time.Microsecond, Bytes: 1}, {Age: (math.MaxInt64 * time.Nanosecond).Truncate(time.Microsecond), Bytes: math.MaxInt64}} {
		e.retain(good)
		e.maintain()
	}
	e.Must(e.Store.CreateOutbox(e.ctx, "other"), "CreateOutbox")
	suite.Equal(e, e.outboxStatus("other").Retention, admin.Retention{}, "retention of the new outbox")
}
