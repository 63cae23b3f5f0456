// ent: an order and the message about it in one transaction. Its feature sql/execquery gives the transaction the methods of database/sql's.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/examples/orms/ent/client"
	"github.com/penstock/penstock/store/postgres"
)

//go:generate go run entgo.io/ent/cmd/ent generate --feature sql/execquery --target client ./schema

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := sql.Open("pgx", os.Getenv("PENSTOCK_DATABASE_URL"))
	if err != nil {
		return err
	}
	db := client.NewClient(client.Driver(entsql.OpenDB(dialect.Postgres, pool)))
	defer db.Close()
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return place(ctx, db, store.Outbox("orders"), "ann", 10)
}

func place(ctx context.Context, db *client.Client, orders *postgres.Outbox, customer string, total int) error {
	tx, err := db.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	o, err := tx.Order.Create().SetCustomer(customer).SetTotal(total).Save(ctx)
	if err != nil {
		return err
	}
	placed := penstock.Message{Key: customer, Topic: "order.placed", Payload: fmt.Appendf(nil, `{"id": %d, "total": %d}`, o.ID, total)}
	if err := orders.PublishSQL(ctx, tx, placed); err != nil {
		return err
	}
	return tx.Commit()
}
