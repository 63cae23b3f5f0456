package sqs_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/sqs"
)

// Credentials come from the environment, the shared files or the machine's role.
func ExampleOpen() {
	cfg, err := sqs.ParseURL("sqs://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := sqs.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
