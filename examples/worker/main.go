// A worker: each job's handler, its writes and the end of the job are one transaction.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/work"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run ends when ctx does and the handlers that still run have ended.
func run(ctx context.Context) error {
	store, err := postgres.Open(ctx, os.Getenv("PENSTOCK_DATABASE_URL"), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	return postgres.WorkTx(ctx, store, "emails", mail, work.Options{Concurrency: 4})
}

// mail is called again, after a growing pause, if it returns an error. Writes through tx take effect once, also if the job runs several times.
func mail(ctx context.Context, tx pgx.Tx, job penstock.Job) error {
	var order struct {
		ID       int64
		Customer string
	}
	if err := json.Unmarshal(job.Payload, &order); err != nil {
		return penstock.Permanent(err) // a dead letter at once: another attempt would read the same payload
	}
	log.Printf("mail to %s about order %d, attempt %d", order.Customer, order.ID, job.Attempt)
	_, err := tx.Exec(ctx, "update shop_order set mailed_at = now() where id = $1", order.ID)
	return err
}
