package memory_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/memory"
)

// A message is published in a transaction, read and settled.
func Example() {
	ctx := context.Background()
	store := memory.New(memory.Options{})
	check(store.Migrate(ctx))
	check(store.CreateOutbox(ctx, "orders"))

	source, err := store.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "example"})
	check(err)
	limit := driver.Limit{Messages: 100, Bytes: 1 << 20}

	tx, err := store.Begin(ctx)
	check(err)
	check(tx.Publish(ctx, "orders", penstock.Message{Key: "42", Topic: "order.placed", Payload: []byte("3 apples")}))
	batch, err := source.Fetch(ctx, limit)
	check(err)
	fmt.Println("before the commit:", len(batch.Messages))

	check(tx.Commit(ctx))
	batch, err = source.Fetch(ctx, limit)
	check(err)
	for _, m := range batch.Messages {
		fmt.Printf("after it: %s %s %q\n", m.Topic, m.Key, m.Payload)
	}
	check(source.Settle(ctx, driver.Settled{Batch: batch}))

	status, err := store.Status(ctx)
	check(err)
	fmt.Println("settled:", status[0].Subscriptions[0].Settled)
	// Output:
	// before the commit: 0
	// after it: order.placed 42 "3 apples"
	// settled: 1
}

// A lease expires by the clock that was given.
func ExampleOptions() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.Options{Now: func() time.Time { return now }})
	check(store.Migrate(ctx))
	check(store.CreateOutbox(ctx, "orders"))

	req := driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "one", Lease: time.Minute}
	one, err := store.Subscribe(ctx, req)
	check(err)
	req.Holder = "two"
	_, err = store.Subscribe(ctx, req)
	fmt.Println(err)

	now = now.Add(time.Minute)
	_, err = store.Subscribe(ctx, req)
	check(err)
	fmt.Println(one.Renew(ctx))
	// Output:
	// subscription "billing" is held by "one" until 2026-01-01T12:01:00Z
	// subscription "billing": the lease of this subscription is held by another relay
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
