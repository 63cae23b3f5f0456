package bench

import (
	"bytes"
	"context"
	"strconv"

	"github.com/penstock/penstock"
)

// digits of its number that a payload begins with, if it is large enough.
const digits = 20

// messages makes n messages, numbered from first.
func (r *relayRun) messages(first, n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	payloads := bytes.Repeat([]byte("abcdefghij"), (n*r.PayloadBytes+9)/10)
	for i := range msgs {
		number := first + i
		payload := payloads[i*r.PayloadBytes : (i+1)*r.PayloadBytes : (i+1)*r.PayloadBytes]
		if r.PayloadBytes >= digits {
			digit := number
			for at := digits - 1; at >= 0; at-- {
				payload[at] = '0' + byte(digit%10)
				digit /= 10
			}
		}
		msgs[i] = penstock.Message{Topic: "bench", Payload: payload}
		if r.Keys > 0 {
			msgs[i].Key = "key-" + strconv.Itoa(number%r.Keys)
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
