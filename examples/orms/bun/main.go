// Bun: an order and the message about it in one transaction.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

type order struct {
	bun.BaseModel `bun:"table:shop_order"`

	ID       int64 `bun:",pk,autoincrement"`
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
	pool, err := sql.Open("pgx", os.Getenv("PENSTOCK_DATABASE_URL"))
	if err != nil {
		return err
	}
	db := bun.NewDB(pool, pgdialect.New())
	defer db.Close()
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return place(ctx, db, store.Outbox("orders"), &order{Customer: "ann", Total: 10})
}

func place(ctx context.Context, db *bun.DB, orders *postgres.Outbox, o *order) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(o).Exec(ctx); err != nil {
			return err
		}
		placed := penstock.Message{Key: o.Customer, Topic: "order.placed", Payload: fmt.Appendf(nil, `{"id": %d, "total": %d}`, o.ID, o.Total)}
		return orders.PublishSQL(ctx, tx.Tx, placed) // tx itself would write the arguments into the statement
	})
}
