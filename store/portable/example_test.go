package portable_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/portable"
)

// An order, the message about it and a job commit together, on whatever speaks PostgreSQL's protocol.
func ExampleOutbox() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := portable.New(db, portable.Options{})
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into shop_order (customer, total) values ('ann', 10)"); err != nil {
			return err
		}
		if err := store.Outbox("orders").PublishTx(ctx, tx, penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte(`{"total": 10}`)}); err != nil {
			return err
		}
		_, err := store.Queue("emails").EnqueueTx(ctx, tx, penstock.NewJob{Key: "ann", Payload: []byte(`{"to": "ann"}`)})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
