package memory_test

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/memory"
	"github.com/penstock/penstock/work"
)

// A job is enqueued in the transaction that causes it, and done by whichever
// worker is free, one at a time of each key.
func Example_queue() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Options{})
	check(store.Migrate(ctx))
	check(store.CreateQueue(ctx, "emails", penstock.FIFO))

	tx, err := store.Begin(ctx)
	check(err)
	_, err = tx.Enqueue(ctx, "emails",
		penstock.NewJob{Key: "customer-7", Payload: []byte("welcome")},
		penstock.NewJob{Key: "customer-7", Payload: []byte("receipt")})
	check(err)
	check(tx.Commit(ctx))

	send := func(_ context.Context, job penstock.Job) error {
		fmt.Printf("%s: %s\n", job.Key, job.Payload)
		if string(job.Payload) == "receipt" {
			stop() // no more; jobs that run are finished
		}
		return nil
	}
	check(work.Run(ctx, store.Queue("emails"), send, work.Options{Concurrency: 4}))
	// Output:
	// customer-7: welcome
	// customer-7: receipt
}
