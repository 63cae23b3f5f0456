// An order, the message about it and the job to mail the customer commit together.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	check(err)
	defer store.Close()
	db, err := pgx.Connect(ctx, os.Getenv("PENSTOCK_DATABASE_URL")) // yours, as is the transaction
	check(err)
	check(pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into shop_order (customer, total) values ('ann', 10)")
		check(err)
		check(postgres.NewOutbox("", "orders").Publish(ctx, tx, penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte(`{"total": 10}`)}))
		_, err = postgres.NewQueue("", "emails").Enqueue(ctx, tx, penstock.NewJob{Key: "ann", Payload: []byte(`{"to": "ann"}`)})
		return err
	}))
	check(work.Run(ctx, store.Queue("emails"), func(ctx context.Context, job penstock.Job) error {
		fmt.Printf("mail: %s\n", job.Payload)
		return nil // an error has the job tried again
	}, work.Options{}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
