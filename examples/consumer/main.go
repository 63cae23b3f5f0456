// A consumer of RabbitMQ with an inbox: each message takes effect once, also if it is delivered again.
//
// PENSTOCK_DATABASE_URL is the database, AMQP_URL the broker (default amqp://guest:guest@localhost/), and QUEUE its queue
// (default orders). AMQP_URL has no options: ?declare_queue=orders is for the relay's --sink.
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := pgxpool.New(ctx, os.Getenv("PENSTOCK_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	box := postgres.New(db, postgres.Options{}).Inbox("billing")
	broker, err := amqp.Dial(cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@localhost/"))
	if err != nil {
		return err
	}
	defer broker.Close()
	channel, err := broker.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(100, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.ConsumeWithContext(ctx, cmp.Or(os.Getenv("QUEUE"), "orders"), "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for d := range deliveries { // until ctx ends; messages without an Ack are delivered again
		if err := receive(context.WithoutCancel(ctx), db, box, d); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errors.New("the broker has closed the channel")
	}
	return nil
}

// receive acknowledges after the commit. After a crash between the two the message is delivered again, and the inbox knows its id.
func receive(ctx context.Context, db *pgxpool.Pool, box *postgres.Inbox, d amqp.Delivery) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		isNew, err := box.First(ctx, tx, d.MessageId)
		if err != nil || !isNew {
			return err
		}
		_, err = tx.Exec(ctx, "insert into invoice (body) values ($1)", d.Body)
		return err
	})
	if err != nil {
		return err
	}
	return d.Ack(false)
}
