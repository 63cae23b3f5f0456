package webhook_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/webhook"
)

// One request for each message; a 2xx answer delivers it.
func ExampleOpen() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.URL.Path, r.Header.Get(webhook.HeaderIdempotencyKey), string(body))
	}))
	defer endpoint.Close()
	sink, err := webhook.Open(webhook.Config{
		URL:          endpoint.URL + "/hooks/{topic}",
		AllowPrivate: true, // the endpoint is on this machine
	}, slog.Default())
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close(context.Background())
	fmt.Println(sink.Send(context.Background(), []penstock.Message{{ID: "0c9e6a52-17", Key: "ann", Topic: "order.placed", Payload: []byte("3 apples")}}))
	// Output:
	// POST /hooks/order.placed 0c9e6a52-17 3 apples
	// []
}
