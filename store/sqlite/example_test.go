package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// An order and the message about it commit together.
func ExampleOutbox() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "shop.db")

	// Once, as `penstock migrate` and `penstock outbox create orders` do it.
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if err := store.CreateOutbox(ctx, "orders"); err != nil {
		log.Fatal(err)
	}

	// The application.
	db, err := sqlite.OpenDB(file)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `create table orders (id integer primary key, total integer)`); err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `insert into orders (total) values (?)`, 4200); err != nil {
		log.Fatal(err)
	}
	err = store.Outbox("orders").PublishTx(ctx, tx, penstock.Message{Key: "customer-7", Topic: "order.placed", Payload: []byte(`{"total":4200}`)})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	// A relay will find these.
	status, err := store.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status[0].Outbox, "in", sqlite.Table(status[0].Outbox))
	// Output: orders in "penstock_outbox_orders"
}

// The job is done in the transaction that ends it, so its effect in the same file
// comes exactly once.
func ExampleWorkTx() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "shop.db")

	// Once, as `penstock migrate` and `penstock queue create invoices` do it.
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if err := store.CreateQueue(ctx, "invoices", penstock.FIFO); err != nil {
		log.Fatal(err)
	}

	// The application: an order and the job it makes commit together.
	db, err := sqlite.OpenDB(file)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `create table invoices (customer text, total integer)`); err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := store.Queue("invoices").EnqueueTx(ctx, tx, penstock.NewJob{Key: "customer-7", Payload: []byte("4200")}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	err = sqlite.WorkTx(ctx, store, "invoices", func(ctx context.Context, tx *sql.Tx, job penstock.Job) error {
		_, err := tx.ExecContext(ctx, `insert into invoices values (?, ?)`, job.Key, string(job.Payload))
		fmt.Println("attempt", job.Attempt, "for", job.Key)
		stop()
		return err
	}, work.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var total int
	if err := db.QueryRow(`select sum(total) from invoices`).Scan(&total); err != nil {
		log.Fatal(err)
	}
	fmt.Println("invoiced", total)
	// Output:
	// attempt 1 for customer-7
	// invoiced 4200
}
