package work_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// Jobs of one key run in order, one at a time. Run returns when its context ends, once
// the handlers that run have returned.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(store.Migrate(ctx))
	check(store.CreateQueue(ctx, "emails", penstock.FIFO))
	queue := store.Queue("emails")
	_, err = queue.Enqueue(ctx,
		penstock.NewJob{Key: "ann", Payload: []byte("welcome")},
		penstock.NewJob{Key: "ann", Payload: []byte("your order")})
	check(err)

	check(work.Run(ctx, queue, func(ctx context.Context, job penstock.Job) error {
		fmt.Printf("to %s: %s\n", job.Key, job.Payload)
		if string(job.Payload) == "your order" {
			stop()
		}
		return nil // an error has the job tried again
	}, work.Options{}))
	// Output:
	// to ann: welcome
	// to ann: your order
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
