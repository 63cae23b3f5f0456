package nats_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/nats"
)

// A stream drops a second copy of a message by its id.
func ExampleOpen() {
	cfg, err := nats.ParseURL("nats://h1:4222/?subject=events.{topic}")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := nats.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
