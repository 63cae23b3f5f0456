package kafka_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/kafka"
)

// The key of a message chooses its partition, which keeps messages of a key in order.
func ExampleOpen() {
	cfg, err := kafka.ParseURL("kafka://h1:9092,h2:9092/?topic={topic}")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := kafka.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
