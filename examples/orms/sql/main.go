// database/sql: an order and the message about it in one transaction.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := sql.Open("pgx", os.Getenv("PENSTOCK_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return placeOrder(ctx, db, store.Outbox("orders"), "ann", 10)
}

func placeOrder(ctx context.Context, db *sql.DB, orders *postgres.Outbox, customer string, total int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	var id int64
	if err := tx.QueryRowContext(ctx, "insert into shop_order (customer, total) values ($1, $2) returning id", customer, total).Scan(&id); err != nil {
		return err
	}
	placed := penstock.Message{Key: customer, Topic: "order.placed", Payload: fmt.Appendf(nil, `{"id": %d, "total": %d}`, id, total)}
	if err := orders.PublishSQL(ctx, tx, placed); err != nil {
		return err
	}
	return tx.Commit()
}
