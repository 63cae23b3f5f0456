package run_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/run"
	"github.com/penstock/penstock/internal/drivers"
)

// From an outbox in a SQLite file to a webhook.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s\n", body)
		stop() // it was all there is
	}))
	defer endpoint.Close()
	dir, err := os.MkdirTemp("", "penstock-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cfg, err := config.Loader{}.LoadBytes("penstock.yaml", []byte(`
database_url: sqlite:`+filepath.Join(dir, "shop.db")+`
log: {level: error}
subscriptions:
  - name: billing
    outbox: orders
    sink: {webhook: {url: `+endpoint.URL+`, allow_private: true}}
`))
	if err != nil {
		log.Fatal(err)
	}

	// The application makes the outbox once, and publishes in its own transactions.
	store, err := drivers.OpenStore(ctx, cfg.DatabaseURL.Reveal(), cfg.Schema, nil)
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
	if err := store.Publish(ctx, "orders", penstock.Message{Key: "42", Topic: "order.placed", Payload: []byte(`{"total": 10}`)}); err != nil {
		log.Fatal(err)
	}

	if err := run.Run(ctx, cfg, run.Options{Store: store}); err != nil {
		log.Fatal(err)
	}
	// Output: {"total": 10}
}
