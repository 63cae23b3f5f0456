package writer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/writer"
)

// Handlers of requests publish at the same time. Each returns when its message is committed, and they share commits.
func ExampleNew() {
	ctx := context.Background()
	store, remove := newStore(ctx)
	defer remove()
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

// An import is repeated because its progress is unknown. Only new messages are published.
func ExampleOnce() {
	ctx := context.Background()
	store, remove := newStore(ctx)
	defer remove()
	check(store.CreateInbox(ctx, "imports", 0))
	w := writer.New(writer.Once(store, "imports"), writer.Options{})
	for _, lines := range [][]string{{"line 1", "line 2"}, {"line 1", "line 2", "line 3"}} {
		for _, line := range lines {
			check(w.Publish(ctx, "orders", penstock.Message{ID: line, Topic: "order.imported"}))
		}
	}
	check(w.Close(ctx))
	source, err := store.Subscribe(ctx, driver.Subscribe{Outbox: "orders", Subscription: "billing"})
	check(err)
	published, err := source.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
	check(err)
	fmt.Println(len(published.Messages), "messages")
	check(source.Close(ctx))
	// Output: 3 messages
}

// newStore is a file with the outbox orders, for one example.
func newStore(ctx context.Context) (store *sqlite.Store, remove func()) {
	dir, err := os.MkdirTemp("", "")
	check(err)
	store, err = sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	check(store.Migrate(ctx))
	check(store.CreateOutbox(ctx, "orders"))
	return store, func() {
		_ = store.Close()
		_ = os.RemoveAll(dir)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
