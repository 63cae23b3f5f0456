package pubsub_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/pubsub"
)

// Credentials are Google's application default credentials.
func ExampleOpen() {
	cfg, err := pubsub.ParseURL("pubsub://my-project/orders")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := pubsub.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
