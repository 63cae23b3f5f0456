package redis_test

import (
	"context"
	"log"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/redis"
)

// A message counts as confirmed when one replica has it too.
func ExampleOpen() {
	cfg, err := redis.ParseURL("redis://relay:secret@redis.example/0?stream=events.{topic}&replicas=1")
	if err != nil {
		log.Fatal(err)
	}
	sink, err := redis.Open(cfg, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	for i, err := range sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}) {
		log.Println(i, err) // none, if all are confirmed
	}
}
