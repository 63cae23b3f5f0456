package amqp1_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/amqp1"
)

func ExampleOpen() {
	cfg, err := amqp1.ParseURL("amqp1://user:password@localhost?address=/exchanges/orders/{topic}")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := amqp1.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
