package work_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// Jobs of one key run in order, one at a time. Run returns when its context has ended and the
// running handlers have returned.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	store, remove := newStore(ctx)
	defer remove()
	queue := store.Queue("emails")
	_, err := queue.Enqueue(ctx,
		penstock.NewJob{Key: "ann", Payload: []byte("welcome")},
		penstock.NewJob{Key: "ann", Payload: []byte("your order")})
	check(err)

	check(work.Run(ctx, queue, func(ctx context.Context, job penstock.Job) error {
		fmt.Printf("to %s: %s\n", job.Key, job.Payload)
		if string(job.Payload) == "your order" {
			stop()
		}
		return nil // after an error the job is tried again
	}, work.Options{}))
	// Output:
	// to ann: welcome
	// to ann: your order
}

type mail struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// A handler that takes decoded payloads. A payload that is not a mail makes the job a dead letter
// at once, with the reason.
func ExampleJSON() {
	ctx, stop := context.WithCancel(context.Background())
	store, remove := newStore(ctx)
	defer remove()
	emails := store.Queue("emails")
	_, err := emails.Enqueue(ctx, penstock.NewJob{Payload: []byte(`["ann"]`)}, penstock.NewJob{Payload: []byte(`{"to": "ann", "text": "welcome"}`)})
	check(err)

	check(work.Run(ctx, emails, work.JSON(func(_ context.Context, m mail, job penstock.Job) error {
		fmt.Printf("attempt %d to %s: %s\n", job.Attempt, m.To, m.Text)
		stop()
		return nil
	}), work.Options{Concurrency: 1}))
	dead, err := store.DeadJobs(context.Background(), admin.DeadJobQuery{Queue: "emails", Limit: 10})
	check(err)
	fmt.Println(dead[0].Err())
	// Output:
	// attempt 1 to ann: welcome
	// reading the payload: json: cannot unmarshal array into Go value of type work_test.mail
}

// A handler that waits for something asks to be called again. This spends no attempt.
func ExampleSnooze() {
	ctx, stop := context.WithCancel(context.Background())
	store, remove := newStore(ctx)
	defer remove()
	emails := store.Queue("emails")
	_, err := emails.Enqueue(ctx, penstock.NewJob{Payload: []byte("welcome")})
	check(err)

	open := false
	check(work.Run(ctx, emails, func(_ context.Context, job penstock.Job) error {
		fmt.Println("attempt", job.Attempt)
		if !open {
			open = true
			return work.Snooze(time.Millisecond)
		}
		stop()
		return nil
	}, work.Options{}))
	// Output:
	// attempt 1
	// attempt 1
}

// On PostgreSQL a job reports its progress to penstock job show and the console.
func ExampleReport() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(work.Run(ctx, store.Queue("imports"), func(ctx context.Context, job penstock.Job) error {
		for done := range 100 {
			if err := work.Report(ctx, map[string]int{"percent": done}); err != nil {
				return err
			}
		}
		return nil
	}, work.Options{}))
}

// newStore is a file with the queue emails, for one example.
func newStore(ctx context.Context) (store *sqlite.Store, remove func()) {
	dir, err := os.MkdirTemp("", "")
	check(err)
	store, err = sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	check(store.Migrate(ctx))
	check(store.CreateQueue(ctx, "emails", penstock.FIFO))
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
