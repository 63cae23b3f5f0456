package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/store/sqlite"
)

// Dead letters of a queue with one error run again.
func ExampleDeadJobQuery() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(store.Migrate(ctx))
	check(store.CreateQueue(ctx, "emails", penstock.FIFO))

	retried, err := store.RetryDeadJobs(ctx, admin.DeadJobQuery{Queue: "emails", Error: "connection refused"})
	check(err)
	status, err := store.QueueStatus(ctx, "emails")
	check(err)
	fmt.Println(retried, "retried,", status[0].Ready, "ready,", status[0].DeadLetters, "dead")
	// Output: 0 retried, 0 ready, 0 dead
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
