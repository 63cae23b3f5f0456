package metrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/store/sqlite"
	"github.com/penstock/penstock/work"
)

// A program serves the metrics of its worker. m.Serve("127.0.0.1:9464") serves them at a separate
// address.
func ExampleMetrics() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "app.db"), sqlite.Options{})
	check(err)
	defer func() { _ = store.Close() }()
	check(store.Migrate(ctx))
	check(store.CreateQueue(ctx, "emails", penstock.FIFO))
	queue := store.Queue("emails")
	_, err = queue.Enqueue(ctx, penstock.NewJob{Payload: []byte("welcome")})
	check(err)

	m := metrics.New(metrics.Options{Store: store})
	check(work.Run(ctx, queue, func(context.Context, penstock.Job) error {
		stop()
		return nil
	}, work.Options{Observer: m.Worker("emails")}))

	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "penstock_worker_ended_jobs_total") && strings.Contains(line, `"done"`) {
			fmt.Print(line)
		}
	}
	// Output: penstock_worker_ended_jobs_total{kind="",queue="emails",result="done"} 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
