package mysql_test

import (
	"context"
	"database/sql"
	"log"
	"os"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/mysql"
)

// An order, the message about it and a job commit together, in the application's own transaction.
func ExampleOutbox() {
	ctx := context.Background()
	db, err := sql.Open("mysql", os.Getenv("DSN")) // shop:secret@tcp(127.0.0.1:3306)/shop
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := mysql.Open(os.Getenv("DATABASE_URL"), mysql.Options{}) // mysql://shop:secret@127.0.0.1:3306/
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "insert into shop_order (customer, total) values ('ann', 10)"); err != nil {
		log.Fatal(err)
	}
	if err := store.Outbox("orders").PublishTx(ctx, tx, penstock.Message{Key: "ann", Topic: "order.placed", Payload: []byte(`{"total": 10}`)}); err != nil {
		log.Fatal(err)
	}
	if _, err := store.Queue("emails").EnqueueTx(ctx, tx, penstock.NewJob{Key: "ann", Payload: []byte(`{"to": "ann"}`)}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
