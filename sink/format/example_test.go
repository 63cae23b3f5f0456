package format_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/kafka"
)

type printer struct{}

func (printer) Send(_ context.Context, msgs []penstock.Message) []error {
	for _, m := range msgs {
		fmt.Printf("%s\n%s\n", m.Headers["content-type"], m.Payload)
	}
	return nil
}

func (printer) Close(context.Context) error { return nil }

// A message as a structured CloudEvents event.
func ExampleWrap() {
	sink, err := format.Wrap(printer{}, format.Config{Kind: format.CloudEvents, Mode: format.Structured, Source: "/shop"}, kafka.Driver.Binding)
	if err != nil {
		log.Fatal(err)
	}
	sink.Send(context.Background(), []penstock.Message{{
		ID: "0c9e6a52-17", Topic: "order.placed", Payload: []byte(`{"total":10}`), CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Attempt: 1,
	}})
	// Output:
	// application/cloudevents+json
	// {"specversion":"1.0","id":"0c9e6a52-17","source":"/shop","type":"order.placed","time":"2026-05-04T03:02:01Z","datacontenttype":"application/json","data":{"total":10}}
}
