// Orders writes an order, the message about it and the job to mail the customer in one transaction,
// and runs the jobs of the queue emails until Ctrl-C. It needs the outbox orders, the queue emails
// and a table shop_order (customer text, total int) in the database of PENSTOCK_DATABASE_URL.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

type mail struct {
	To string `json:"to"`
}

func sendMail(ctx context.Context, m mail, job penstock.Job) error {
	fmt.Printf("mail to %s, attempt %d\n", m.To, job.Attempt)
	return nil // an error retries the job with backoff
}

func run(ctx context.Context, url string) error {
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	store := postgres.New(db, postgres.Options{}) // on your *pgxpool.Pool
	orders, emails := store.Outbox("orders"), store.Queue("emails")

	// The order, the message and the job are committed together, or none of them.
	placeOrder := func() error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into shop_order (customer, total) values ('ann', 10)"); err != nil {
				return err
			}
			if err := orders.PublishTx(ctx, tx, penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte(`{"total": 10}`)}); err != nil {
				return err
			}
			_, err := emails.EnqueueTx(ctx, tx, penstock.NewJob{Key: "ann", Payload: []byte(`{"to": "ann"}`)})
			return err
		})
	}
	if err := placeOrder(); err != nil {
		return err
	}
	// In the worker, with func sendMail(ctx context.Context, m mail, job penstock.Job) error:
	return work.Run(ctx, emails, work.JSON(sendMail), work.Options{Concurrency: 20})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Getenv("PENSTOCK_DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}
