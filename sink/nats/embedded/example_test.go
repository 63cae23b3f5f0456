package embedded_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock/sink/nats/embedded"
)

// A server in this process, which others cannot reach: no port, no installation.
func ExampleStart() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "streams")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := embedded.Start(embedded.Options{Dir: dir})
	check(err)
	defer func() { _ = server.Shutdown(ctx) }()

	conn, err := nats.Connect("", nats.InProcessServer(server))
	check(err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	check(err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "orders", Subjects: []string{"order.>"}})
	check(err)
	confirmed, err := js.Publish(ctx, "order.placed", []byte("{}"))
	check(err)
	fmt.Println(confirmed.Stream, confirmed.Sequence)
	// Output: orders 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
