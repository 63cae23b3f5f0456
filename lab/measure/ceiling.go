package measure

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/messageid"
)

// Senders and batches of the ceiling are the relay's defaults.
const (
	senders = 8
	batch   = 512
)

// brokerCeiling sends messages from memory through a sink, with nothing to
// order, read or store, and returns how many were confirmed per second. messages
// makes n of them, numbered from first; those without an id get one. It ends after total of them,
// or with those on their way when the time is up; 0 means no limit.
func (r *rig) brokerCeiling(ctx context.Context, sink driver.Sink, messages func(first, n int) []penstock.Message, total int, atMost time.Duration) (float64, error) {
	var next, sent atomic.Int64
	ids := messageid.Outbox{UID: messageid.NewUID()} // as long as the relay's: from some twenty bytes on RabbitMQ feels them
	start := time.Now()
	err := together(ctx, senders, func(ctx context.Context, _ int) error {
		for ctx.Err() == nil && (atMost == 0 || time.Since(start) < atMost) {
			first := int(next.Add(batch)) - batch
			if first >= total {
				return nil
			}
			msgs := messages(first, min(batch, total-first))
			for i := range msgs {
				if msgs[i].ID == "" {
					msgs[i].ID = ids.ID(int64(first+i), start)
				}
				msgs[i].Attempt, msgs[i].CreatedAt = 1, start
			}
			if err := errors.Join(sink.Send(ctx, msgs)...); err != nil {
				return err
			}
			sent.Add(int64(len(msgs)))
		}
		return nil
	})
	return float64(sent.Load()) / time.Since(start).Seconds(), err
}

// readCeiling fetches the backlog and sends it nowhere.
func (r *rig) readCeiling(ctx context.Context) (float64, error) {
	// A reader along sees what is not reclaimed; what earlier rounds have
	// settled may be among it.
	src, err := r.Store.Subscribe(ctx, driver.Subscribe{Outbox: r.outbox, Subscription: subscription, Holder: holder, Ephemeral: true})
	if err != nil {
		return 0, err
	}
	defer func() { _ = src.Close(ctx) }()
	start, n := time.Now(), 0
	for {
		b, err := src.Fetch(ctx, driver.Limit{Messages: 4096, Bytes: 8 << 20})
		if err != nil {
			return 0, err
		}
		if len(b.Messages) == 0 {
			return float64(n) / time.Since(start).Seconds(), nil
		}
		n += len(b.Messages)
	}
}
