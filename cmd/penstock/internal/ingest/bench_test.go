package ingest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ingest"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// BenchmarkIngest has 64 clients in this process send requests of one message, and of 500, to PostgreSQL:
//
//	bin/withservers -only postgres go test ./cmd/penstock/internal/ingest -run '^$' -bench Ingest -benchtime 5s
//
// messages/s counts acknowledged messages. The database is in memory unless PENSTOCK_TEST_DATA is set.
func BenchmarkIngest(b *testing.B) {
	const clients = 64
	for _, inbox := range []string{"", "ingest"} {
		for _, size := range []int{1, 500} {
			b.Run(fmt.Sprintf("inbox=%t/messages=%d", inbox != "", size), func(b *testing.B) {
				store, err := open(b.Context(), postgrestest.Database(b))
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = store.Close() }()
				for _, err := range []error{store.Migrate(b.Context()), store.CreateOutbox(b.Context(), "orders"), store.CreateInbox(b.Context(), "ingest", 0)} {
					if err != nil {
						b.Fatal(err)
					}
				}
				s, end := serve(b, store, ingest.Options{MaxWait: time.Minute, Outboxes: []ingest.Outbox{{Name: "orders", Inbox: inbox}}})
				defer end()
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
				var sent atomic.Int64
				var all sync.WaitGroup
				payload := strings.Repeat("x", 200)
				b.ResetTimer()
				for range clients {
					all.Go(func() {
						for {
							n := sent.Add(1)
							if n > int64(b.N) {
								return
							}
							var body strings.Builder
							for i := range size {
								fmt.Fprintf(&body, `{"id":"%d-%d","key":"%d","topic":"event","payload":"%s"}`+"\n", n, i, i%100, payload)
							}
							answer, err := client.Post("http://"+s.Addr()+"/outboxes/orders/messages", "application/x-ndjson", strings.NewReader(body.String()))
							if err != nil {
								b.Error(err)
								return
							}
							text, _ := io.ReadAll(answer.Body)
							_ = answer.Body.Close()
							if answer.StatusCode != http.StatusOK {
								b.Errorf("%d %s", answer.StatusCode, text)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}
