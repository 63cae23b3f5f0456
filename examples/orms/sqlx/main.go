// sqlx: an order and the message about it in one transaction.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

type order struct {
	ID       int64
	Customer string
	Total    int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := sqlx.ConnectContext(ctx, "pgx", os.Getenv("PENSTOCK_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return place(ctx, db, store.Outbox("orders"), &order{Customer: "ann", Total: 10})
}

func place(ctx context.Context, db *sqlx.DB, orders *postgres.Outbox, o *order) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	insert, args, err := tx.BindNamed("insert into shop_order (customer, total) values (:customer, :total) returning id", o)
	if err != nil {
		return err
	}
	if err := tx.GetContext(ctx, &o.ID, insert, args...); err != nil {
		return err
	}
	placed := penstock.Message{Key: o.Customer, Topic: "order.placed", Payload: fmt.Appendf(nil, `{"id": %d, "total": %d}`, o.ID, o.Total)}
	if err := orders.PublishSQL(ctx, tx, placed); err != nil {
		return err
	}
	return tx.Commit()
}
