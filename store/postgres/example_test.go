package postgres_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

// An order, the message about it and a job commit together. examples/orders is the whole program.
func ExampleOutbox() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := postgres.New(db, postgres.Options{})
	orders, emails := store.Outbox("orders"), store.Queue("emails")
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into shop_order (customer, total) values ('ann', 10)"); err != nil {
			return err
		}
		if err := orders.PublishTx(ctx, tx, penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte(`{"total": 10}`)}); err != nil {
			return err
		}
		_, err := emails.EnqueueTx(ctx, tx, penstock.NewJob{Key: "ann", Payload: []byte(`{"to": "ann"}`), DedupKey: "welcome-ann"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The rows that the handler writes in tx and the end of its job commit together: done once, whatever
// crashes.
func ExampleWorkTx() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	err = postgres.WorkTx(ctx, store, "invoices", func(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
		_, err := tx.Exec(ctx, "insert into invoice (customer, body) values ($1, $2)", job.Key, job.Payload)
		return err
	}, work.Options{Concurrency: 4})
	if err != nil {
		log.Fatal(err)
	}
}

// A message that comes again takes effect once: what it writes and its id commit together. examples/consumer is a whole program.
func ExampleInbox_First() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	billing := postgres.New(db, postgres.Options{}).Inbox("billing")
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		isNew, err := billing.First(ctx, tx, "the message's id")
		if err != nil || !isNew {
			return err
		}
		_, err = tx.Exec(ctx, "insert into invoice (customer) values ('ann')")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
