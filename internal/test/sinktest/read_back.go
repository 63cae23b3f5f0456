package sinktest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/test/suite"
)

// ReadBack checks the consumer that a sink has for the demo and the benchmark: it reads everything that was sent, and ends.
func ReadBack[C any](t *testing.T, of descriptor.Sink[C], sinkURL string) {
	const keys, each = 5, 40
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	broker, err := of.ReadBack(sinkURL, t.TempDir(), fmt.Sprintf("penstock_test_%d", time.Now().UnixNano()))
	suite.OK(t, err)
	cfg, err := of.Parse(broker.SinkURL())
	suite.OK(t, err)
	sink, err := of.Open(cfg, slog.New(slog.DiscardHandler))
	suite.OK(t, err)
	suite.OK(t, broker.Open(ctx, sink))
	next := map[string]int{}
	for n := range each {
		var msgs []penstock.Message
		for k := range keys {
			key := fmt.Sprintf("key-%d", k)
			id := fmt.Sprintf("%s %d", key, n)
			msgs = append(msgs, penstock.Message{ID: id, Key: key, Topic: "orders", Payload: []byte(id), CreatedAt: time.Now(), Attempt: 1})
		}
		for ctx.Err() == nil {
			errs := sink.Send(ctx, msgs)
			if errs == nil {
				break
			}
			for _, err := range errs { // it may not be connected yet
				if !penstock.IsUnavailable(err) {
					t.Fatal(errs)
				}
			}
		}
	}
	suite.OK(t, broker.Finish(ctx))
	suite.OK(t, broker.Read(ctx, func(a readback.Arrival) { // not before: it must not end with the first that it finds
		if want := fmt.Sprintf("%s %d", a.Key, next[a.Key]); string(a.Payload) != want || a.ID != want {
			t.Errorf("%q with the key %q and the id %q arrives; want %q", a.Payload, a.Key, a.ID, want)
		}
		next[a.Key]++
	}))
	for k := range keys {
		suite.Equal(t, next[fmt.Sprint("key-", k)], each, "messages of key-%d that were read", k)
	}
	suite.OK(t, sink.Close(ctx))
	suite.OK(t, broker.Remove(ctx))
	suite.OK(t, broker.Close())
}
