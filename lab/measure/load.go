package measure

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/penstock/penstock"
)

// digits of its number that a payload begins with, if it is large enough.
const digits = 20

// load describes numbered messages. Message n has the key n modulo keys.
type load struct {
	topic   string
	keyName string
	keys    int // 0 or less: no keys
	payload int // bytes
}

// messages makes n messages, numbered from first.
func (l load) messages(first, n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	payloads := bytes.Repeat([]byte("abcdefghij"), (n*l.payload+9)/10)
	for i := range msgs {
		number := first + i
		payload := payloads[i*l.payload : (i+1)*l.payload : (i+1)*l.payload]
		if l.payload >= digits {
			digit := number
			for at := digits - 1; at >= 0; at-- {
				payload[at] = '0' + byte(digit%10)
				digit /= 10
			}
		}
		msgs[i] = penstock.Message{Topic: l.topic, Payload: payload}
		if l.keys > 0 {
			msgs[i].Key = l.key(number)
		}
	}
	return msgs
}

func (l load) key(number int) string { return l.keyName + strconv.Itoa(number%l.keys) }

// number reads a message's number from its payload; false for the warm-up.
func number(payload []byte) (int, bool) {
	if len(payload) < digits {
		return 0, false
	}
	n := 0
	for _, digit := range payload[:digits] {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		n = n*10 + int(digit-'0')
	}
	return n, true
}

// chunk is how many messages a transaction of the backlog has.
const chunk = 1000

// publish writes a backlog of total messages.
func (r *rig) publish(ctx context.Context, l load, total int, when string) error {
	r.progress("%s: publishing %d messages", when, total)
	for first := 0; first < total; first += chunk {
		if err := r.Store.Publish(ctx, r.outbox, l.messages(first, min(chunk, total-first))...); err != nil {
			return fmt.Errorf("publishing the backlog: %w", err)
		}
	}
	return nil
}
