package relay_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/sqlite"
)

// printer is the smallest sink: it confirms the messages that it has printed.
type printer struct{ after func() }

func (p printer) Send(_ context.Context, msgs []penstock.Message) []error {
	for _, m := range msgs {
		fmt.Printf("%s %s\n", m.Topic, m.Payload)
	}
	p.after()
	return nil
}

func (printer) Close(context.Context) error { return nil }

// A relay carries one subscription to one sink until it is asked to drain.
func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(store.Migrate(ctx))
	check(store.CreateOutbox(ctx, "orders"))
	check(store.Outbox("orders").Publish(ctx, penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}))

	var r *relay.Relay
	r, err = relay.New(store, "orders", "billing", printer{after: func() { r.Drain() }}, relay.Options{})
	check(err)
	check(r.Run(ctx))
	status, err := store.Status(ctx)
	check(err)
	fmt.Println("settled:", status[0].Subscriptions[0].Settled)
	// Output:
	// order.placed 3 apples
	// settled: 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
