package inflight_test

import (
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/inflight"
)

type (
	ledger = inflight.Ledger[struct{}]
	batch  = inflight.Batch[struct{}]
)

// add puts a batch of n messages of 100 bytes each into the ledger.
func add(l *ledger, n int) *batch {
	b := l.Batch(driver.Batch{Messages: make([]penstock.Message, n)})
	b.Bytes = 100 * n
	l.Add(b)
	return b
}

func deliver(b *batch) {
	for i := range b.Messages {
		b.Deliver(uint32(i))
	}
}

func TestWindow(t *testing.T) {
	l := &ledger{MaxMessages: 8, MaxBytes: 1000}
	if limit, ok := l.Room(); !ok || limit != (driver.Limit{Messages: 2, Bytes: 250}) {
		t.Fatalf("an empty ledger: %v %v", limit, ok)
	}
	a, b, c := add(l, 2), add(l, 3), add(l, 2)
	if _, ok := l.Room(); ok {
		t.Error("room for a quarter with one message free")
	}
	deliver(b)
	if l.Advance() || l.Pressing() || l.Ready() {
		t.Error("advanced past the first batch")
	}
	deliver(a)
	if !l.Advance() || !l.Pressing() || !l.Ready() {
		t.Error("two batches of five messages lead, and it does not say so")
	}
	if call, isNew := l.Settle(false, 0); !isNew || len(call.News) != 2 || call.News[0].Verdicts != nil || call.News[1].Open {
		t.Errorf("the call is %+v, want both batches, delivered", call)
	}
	if n := l.Settled(); n.Messages != 5 || l.Messages() != 2 || l.Ready() || l.Batches()[0] != c {
		t.Errorf("after settling: %+v, %+v", n, l)
	}
	if d := add(l, 3); d != b || len(d.Messages) != 3 {
		t.Error("a settled batch of the right size is not used again")
	}
	deliver(c)
	l.Forget()
	if d := l.Batch(driver.Batch{Messages: make([]penstock.Message, 2)}); d == c {
		t.Error("a forgotten batch is used again while a Send may hold its messages")
	}
	if _, ok := l.Room(); l.Messages() != 0 || !ok {
		t.Error("forgotten messages still take room")
	}
}
