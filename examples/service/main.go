// A web service with an outbox: POST /orders writes the order, the message about it and the job to mail the customer in one transaction.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres"
)

type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Total    int    `json:"total"`
}

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
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s", listener.Addr())
	store := postgres.New(db, postgres.Options{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) { place(w, r, db, store) })
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done(): // requests that have begun are answered
		return server.Shutdown(context.WithoutCancel(ctx))
	}
}

func place(w http.ResponseWriter, r *http.Request, db *pgxpool.Pool, store *postgres.Store) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&o); err != nil || o.Customer == "" {
		http.Error(w, "send a customer and a total", http.StatusBadRequest)
		return
	}
	err := pgx.BeginFunc(r.Context(), db, func(tx pgx.Tx) error { return o.save(r.Context(), tx, store) })
	if err != nil { // nothing of it was written, and nothing will be sent
		log.Print(err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o)
}

func (o *order) save(ctx context.Context, tx pgx.Tx, store *postgres.Store) error {
	if err := tx.QueryRow(ctx, "insert into shop_order (customer, total) values ($1, $2) returning id", o.Customer, o.Total).Scan(&o.ID); err != nil {
		return err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := store.Outbox("orders").PublishTx(ctx, tx, penstock.Message{Key: o.Customer, Topic: "order.placed", Payload: body}); err != nil {
		return err
	}
	_, err = store.Queue("emails").EnqueueTx(ctx, tx, penstock.NewJob{Key: o.Customer, Payload: body})
	return err
}
