package writer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/writer"
)

// Handlers of requests publish at the same time. Each returns when its message is committed, and they share commits.
func ExampleWriter() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(store.Migrate(ctx))
	check(store.CreateOutbox(ctx, "orders"))

	w := writer.New(store, writer.Options{})
	var requests sync.WaitGroup
	for i := range 100 {
		requests.Go(func() {
			check(w.Publish(ctx, "orders", penstock.Message{Key: fmt.Sprint(i), Topic: "order.placed", Payload: []byte("{}")}))
		})
	}
	requests.Wait()
	check(w.Close(ctx))
	fmt.Println(w.Stats().Rows, "messages, none of them lost:", w.Stats().Lost == 0)
	// Output: 100 messages, none of them lost: true
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
