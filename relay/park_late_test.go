package relay

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// lateSource gives messages other numbers, as if some of them had committed late. It returns parked messages in the
// order of parking, and says so with their places.
type lateSource struct {
	*fakeSource
	seqs []int64 // of the messages 1, 2, …
}

func (s lateSource) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	b, err := s.fakeSource.Fetch(ctx, limit)
	if s.fakeSource.batches[b.Number].parked != nil {
		for _, m := range b.Messages {
			b.Places = append(b.Places, math.MinInt64+m.Seq)
		}
	}
	b.Messages = renumbered(b.Messages, func(seq int64) int64 { return s.seqs[seq-1] })
	return b, err
}

func (s lateSource) Settle(ctx context.Context, attempt uint64, settled ...driver.Settled) error {
	settled = slices.Clone(settled)
	for i := range settled {
		settled[i].Batch.Messages = renumbered(settled[i].Batch.Messages, s.arrival)
	}
	return s.fakeSource.Settle(ctx, attempt, settled...)
}

func (s lateSource) arrival(seq int64) int64 { return int64(slices.Index(s.seqs, seq) + 1) }

func renumbered(msgs []penstock.Message, number func(int64) int64) []penstock.Message {
	msgs = slices.Clone(msgs)
	for i := range msgs {
		msgs[i].Seq = number(msgs[i].Seq)
	}
	return msgs
}

type lateSink struct {
	*sink
	arrival func(int64) int64
}

func (k lateSink) Send(ctx context.Context, msgs []penstock.Message) []error {
	return k.sink.Send(ctx, renumbered(msgs, k.arrival))
}

// Two messages of a key committed late, so they are parked in an order other than that of their numbers. A third, with a number between
// theirs, has come and waits in memory to be parked behind them. They are sent in the order of parking, each once. The first must not wait
// for the third while the second is sent.
func TestLateCommitsInThePark(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		second, slow := make(chan struct{}), make(chan struct{})
		k.before = func(_ context.Context, msgs []penstock.Message) {
			switch m := &msgs[0]; {
			case m.Seq == 1 && m.Attempt == 2:
				<-second
			case m.Seq == 4:
				<-slow
			}
		}
		source := lateSource{seqs: []int64{3, 10, 5, 6, 8}}
		l.publishKeys(3, "a")
		l.wrap = func(src *fakeSource) driver.Source {
			source.fakeSource = src
			return source
		}
		r, result := start(t, t.Context(), l, lateSink{k, source.arrival}, func(c *Options) { c.ParkAfter, c.MaxBatch = 1, 1 })
		pass(time.Second) // all are parked, and 1 is tried again
		l.publishKeys(2, "", "a")
		pass(100 * time.Millisecond) // 4 hangs, the verdict on 5 waits for it
		if parked, _ := l.parkedMessages(); parked != 3 {
			t.Fatalf("%d parked, want 1 to 3", parked)
		}
		k.letGo(bad)
		close(second)
		pass(100 * time.Millisecond)
		if k.delivered() != 3 {
			t.Errorf("%d delivered, want 1 to 3", k.delivered())
		}
		close(slow)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
		if k.delivered() != 5 {
			t.Errorf("%d deliveries of 5 messages", k.delivered())
		}
	})
}
