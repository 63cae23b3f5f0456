package stdout_test

import (
	"context"
	"os"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/stdout"
)

func ExampleNew() {
	sink := stdout.New(os.Stdout)
	sink.Send(context.Background(), []penstock.Message{{
		ID: "0c9e6a52-17", Seq: 17, Key: "ann", Topic: "order.placed", Payload: []byte("3 apples"),
		CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Attempt: 1,
	}})
	// Output:
	// {"id":"0c9e6a52-17","seq":17,"key":"ann","topic":"order.placed","payload":"3 apples","created_at":"2026-05-04T03:02:01Z","attempt":1}
}
