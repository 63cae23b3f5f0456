package rabbitmq_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/rabbitmq"
)

// Any host of a cluster will do. A message for which no queue is bound is not delivered.
func ExampleOpen() {
	cfg, err := rabbitmq.ParseURL("amqp://relay:secret@h1,h2/?exchange=events&routing_key={topic}")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := rabbitmq.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
