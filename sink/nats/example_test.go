package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/nats-io/nats-server/v2/server"

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

// A server of nats-server's package server in this process: no port, no installation.
func ExampleConfig_inProcess() {
	dir, err := os.MkdirTemp("", "streams")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir})
	if err != nil {
		log.Fatal(err)
	}
	srv.Start()
	defer srv.Shutdown()

	sink, err := nats.Open(nats.Config{InProcess: srv, Subject: "orders.{topic}", CreateStream: &nats.StreamConfig{Name: "ORDERS"}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer sink.Close(ctx)
	failed := sink.Send(ctx, []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "placed", Payload: []byte("3 apples")}})
	fmt.Println(errors.Join(failed...))
	// Output: <nil>
}
