package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// backwards gives messages falling numbers, as sequences that hand out blocks of numbers may. Their places grow.
func backwards(msgs []penstock.Message) []penstock.Message {
	msgs = slices.Clone(msgs)
	for i := range msgs {
		msgs[i].Seq = 1_000_000 - msgs[i].Seq
	}
	return msgs
}

type backwardsSource struct{ driver.Source }

func (s backwardsSource) Fetch(ctx context.Context, limit driver.Limit) (driver.Batch, error) {
	b, err := s.Source.Fetch(ctx, limit)
	for _, m := range b.Messages {
		b.Places = append(b.Places, m.Seq)
	}
	b.Messages = backwards(b.Messages)
	return b, err
}

func (s backwardsSource) Settle(ctx context.Context, attempt uint64, settled ...driver.Settled) error {
	settled = slices.Clone(settled)
	for i := range settled {
		settled[i].Batch.Messages = backwards(settled[i].Batch.Messages)
	}
	return s.Source.Settle(ctx, attempt, settled...)
}

type backwardsSink struct{ *sink }

func (k backwardsSink) Send(ctx context.Context, msgs []penstock.Message) []error {
	return k.sink.Send(ctx, backwards(msgs))
}

// A message fetched while a Parked verdict becomes durable is parked behind it by its place, though its number is
// lower.
func TestParksByPlace(t *testing.T) {
	bad := &refuse{seq: 1}
	testParking(t, bad, func(t *testing.T, l *outbox, k *sink) {
		hang, held := newFlag(false), make(chan struct{})
		l.fetchWait = func(context.Context) {
			if hang.Load() {
				<-held
			}
		}
		l.publishKeys(1, "a")
		l.wrap = func(src *fakeSource) driver.Source { return backwardsSource{src} }
		r, result := start(t, t.Context(), l, backwardsSink{k}, func(c *Options) { c.ParkAfter = 1 })
		synctest.Wait()
		hang.Store(true)
		pass(400 * time.Millisecond) // a Fetch has begun, and then message 1 was parked
		l.publishKeys(3, "a", "b", "a")
		hang.Store(false)
		close(held)
		synctest.Wait()
		k.letGo(bad)
		pass(time.Minute)
		finish(t, r, result, l, k)
		checkOrder(t, l, k)
	})
}
