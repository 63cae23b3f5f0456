// GORM: an order and the message about it in one transaction.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	driver "gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

type order struct {
	ID       int64
	Customer string
	Total    int
}

func (order) TableName() string { return "shop_order" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db, err := gorm.Open(driver.Open(os.Getenv("PENSTOCK_DATABASE_URL")))
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return place(ctx, db, store.Outbox("orders"), &order{Customer: "ann", Total: 10})
}

func place(ctx context.Context, db *gorm.DB, orders *postgres.Outbox, o *order) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(o).Error; err != nil {
			return err
		}
		placed := penstock.Message{Key: o.Customer, Topic: "order.placed", Payload: fmt.Appendf(nil, `{"id": %d, "total": %d}`, o.ID, o.Total)}
		return orders.PublishSQL(ctx, tx.Statement.ConnPool.(postgres.SQLTx), placed) // GORM's name for the transaction
	})
}
