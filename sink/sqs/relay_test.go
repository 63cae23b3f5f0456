package sqs_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/relay"
)

// A poisoned message of a FIFO group is a dead letter with the limit in the reason. No other group stops, order
// within each group holds, and nothing is lost. Throttling on the way spends no attempt.
func TestRelayToFIFO(t *testing.T) {
	const keys, each = 10, 10
	e := awstest.StartFake(t)
	queue := e.Queue(t, "orders.fifo")
	e.Fake.MaxBytes(256 << 10)
	throttled := 0
	e.Fake.RefuseEntries(func(_, body string) (string, bool) {
		if body == "key-3 4" && throttled == 0 {
			throttled++
			return "ThrottlingException", true
		}
		return "", false
	})
	store, ctx := sqlitetest.New(t), patient(t)
	check(t, store.CreateOutbox(ctx, "orders"))
	var stats relay.Counters
	r, err := relay.New(store, "orders", "sqs", open(t, e, queue), relay.Options{MaxAttempts: 1, Logger: slog.New(slog.DiscardHandler), Observer: &stats})
	check(t, err)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for i := range each {
		for k := range keys {
			m := penstock.Message{Key: fmt.Sprintf("key-%d", k), Topic: "orders", Payload: fmt.Appendf(nil, "key-%d %d", k, i)}
			if k == 7 && i == 5 {
				m.Payload = []byte(strings.Repeat("x", 256<<10+1))
			}
			check(t, store.Publish(ctx, "orders", m))
		}
	}
	var letters []admin.DeadLetter
	for deadline := time.Now().Add(sinktest.Patience); stats.Delivered.Load() < keys*each-1 || len(letters) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are delivered, %d dead letters", stats.Delivered.Load(), len(letters))
		}
		letters, err = store.DeadLetters(ctx, admin.DeadLetterQuery{Outbox: "orders", Subscription: "sqs"})
		check(t, err)
	}
	r.Drain()
	check(t, <-done)
	if len(letters) != 1 || letters[0].Message.Key != "key-7" || !strings.Contains(letters[0].Err(), "shorter than 262144 bytes") {
		t.Errorf("dead letters: %.500v", letters)
	}
	next := map[string]int{"key-7": 0}
	for _, m := range e.Drain(t, keys*each-1, queue) {
		if m.Key == "key-7" && next[m.Key] == 5 {
			next[m.Key]++ // the dead letter
		}
		if want := fmt.Sprintf("%s %d", m.Key, next[m.Key]); string(m.Payload) != want {
			t.Errorf("%.40q arrived, want %q", m.Payload, want)
		}
		next[m.Key]++
	}
	for key, n := range next {
		if n != each {
			t.Errorf("%s: %d messages", key, n)
		}
	}
	if throttled != 1 || len(next) != keys {
		t.Errorf("%d throttled, %d keys", throttled, len(next))
	}
}
