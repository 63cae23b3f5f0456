package work_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A shop's server is busy. Its jobs wait, and those of other shops continue.
func ExampleHoldGroup() {
	ctx, stop := context.WithCancel(context.Background())
	store, remove := newStore(ctx)
	defer remove()
	emails := store.Queue("emails")
	_, err := emails.Enqueue(ctx, penstock.NewJob{Group: "shop-17", Payload: []byte("order 1")}, penstock.NewJob{Group: "shop-18", Payload: []byte("order 2")})
	check(err)

	check(work.Run(ctx, emails, func(_ context.Context, job penstock.Job) error {
		if job.Group == "shop-17" {
			return work.HoldGroup(time.Minute, "its server answered 429")
		}
		fmt.Println(job.Group, string(job.Payload))
		stop()
		return nil
	}, work.Options{AllGroups: true, Concurrency: 1, Logger: slog.New(slog.DiscardHandler)}))
	held, err := store.GroupPolicies(context.Background(), "emails", "", 10)
	check(err)
	fmt.Println(held[0].Group, "is held:", held[0].Reason)
	// Output:
	// shop-18 order 2
	// shop-17 is held: its server answered 429
}

// One queue carries mails of two kinds. Each kind has a handler, and all of them are logged.
func ExampleMux() {
	ctx, stop := context.WithCancel(context.Background())
	store, remove := newStore(ctx)
	defer remove()
	emails := store.Queue("emails")
	_, err := emails.Enqueue(ctx,
		penstock.NewJob{Kind: "welcome", Payload: []byte(`{"to": "ann"}`)},
		penstock.NewJob{Kind: "reminder", Payload: []byte(`{"to": "bob", "text": "your cart"}`)})
	check(err)

	var mux work.Mux
	mux.Handle("welcome", work.JSON(func(_ context.Context, m mail, _ penstock.Job) error {
		fmt.Println("welcome,", m.To)
		return nil
	}))
	mux.Handle("reminder", work.JSON(func(_ context.Context, m mail, _ penstock.Job) error {
		fmt.Printf("%s, remember %s\n", m.To, m.Text)
		stop()
		return nil
	}), work.Timeout(time.Minute), work.MaxAttempts(3))
	mux.Use(func(next work.Handler) work.Handler {
		return func(ctx context.Context, job penstock.Job) error {
			fmt.Printf("a job of the kind %s: ", job.Kind())
			return next(ctx, job)
		}
	})
	check(work.Run(ctx, emails, mux.Handler(), work.Options{Concurrency: 1}))
	// Output:
	// a job of the kind welcome: welcome, ann
	// a job of the kind reminder: bob, remember your cart
}

// Mails of one kind are given up sooner than those of others.
func ExampleMaxAttempts() {
	var mux work.Mux
	mux.Handle("", send)
	mux.Handle("one-time password", send, work.MaxAttempts(2))
	err := mux.Handler()(context.Background(), penstock.Job{Attempt: 2, Headers: map[string]string{penstock.HeaderKind: "one-time password"}})
	fmt.Println(penstock.IsPermanent(err), err)
	// Output: true the mail server is busy
}

// The pause before the next attempt grows by a minute each time, and is up to a tenth longer for some.
func ExampleBackoff() {
	slowly := work.Backoff(func(attempt int) time.Duration {
		pause := time.Duration(attempt) * time.Minute
		return pause + rand.N(pause/10)
	})
	after, _ := penstock.RetryDelay(slowly(send)(context.Background(), penstock.Job{Attempt: 3}))
	fmt.Println(after.Truncate(time.Minute))
	// Output: 3m0s
}

// A handler that waits for its context ends in time.
func ExampleTimeout() {
	h := work.Timeout(time.Millisecond)(func(ctx context.Context, _ penstock.Job) error {
		<-ctx.Done()
		return ctx.Err()
	})
	fmt.Println(h(context.Background(), penstock.Job{}))
	// Output: the job ran longer than its timeout of 1ms: context deadline exceeded
}

func send(context.Context, penstock.Job) error { return errors.New("the mail server is busy") }

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

// A job reports its progress, which the console shows.
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

// A payment is charged once, though the parcel is not sent at the first attempt.
func ExampleStep() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(work.Run(ctx, store.Queue("orders"), func(ctx context.Context, job penstock.Job) error {
		receipt, err := work.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return charge(ctx, job.Payload, fmt.Sprintf("order %d", job.ID)) // the payment provider takes the same key once
		})
		if err != nil {
			return err
		}
		return ship(ctx, job.Payload, receipt)
	}, work.Options{}))
}

// The step's writes and its result are in one transaction.
func ExampleStepTx() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	defer db.Close()
	orders := postgres.New(db, postgres.Options{}).Queue("orders")
	check(work.Run(ctx, orders, func(ctx context.Context, job penstock.Job) error {
		var receipt string
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
			receipt, err = work.StepTx(ctx, orders.Reporter(tx), "book", func(ctx context.Context) (string, error) {
				_, err := tx.Exec(ctx, "insert into bookings (details) values ($1)", job.Payload)
				return "booked", err
			})
			return err
		})
		if err != nil {
			return err
		}
		return ship(ctx, job.Payload, receipt)
	}, work.Options{}))
}

func charge(context.Context, []byte, string) (string, error) { return "", nil }
func ship(context.Context, []byte, string) error             { return nil }

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
