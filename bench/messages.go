package bench

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
)

// messages makes n messages, numbered from first.
func (r *relayRun) messages(first, n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	filler := make([]byte, max(r.PayloadBytes-20, 0))
	for i := range filler {
		filler[i] = 'a' + byte(i%26)
	}
	for i := range msgs {
		number := first + i
		payload := append(fmt.Appendf(nil, "%020d", number)[:min(20, r.PayloadBytes)], filler...)
		msgs[i] = penstock.Message{Topic: "bench", Payload: payload}
		if r.Keys > 0 {
			msgs[i].Key = fmt.Sprintf("key-%d", number%r.Keys)
		}
	}
	return msgs
}

// publish writes the backlog in transactions of 1,000 messages.
func (r *relayRun) publish(ctx context.Context) error {
	const chunk = 1000
	for first := 0; first < r.Messages; first += chunk {
		if err := r.Store.Publish(ctx, r.Outbox, r.messages(first, min(chunk, r.Messages-first))...); err != nil {
			return err
		}
	}
	_, err := r.size(ctx)
	return err
}
