package driver_test

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// printer is the smallest sink: it confirms the messages that it has printed.
type printer struct{}

func (printer) Send(_ context.Context, msgs []penstock.Message) []error {
	for _, m := range msgs {
		fmt.Printf("%s %s\n", m.Topic, m.Payload)
	}
	return nil
}

func (printer) Close(context.Context) error { return nil }

var _ driver.Sink = printer{}

func ExampleSink() {
	errs := printer{}.Send(context.Background(), []penstock.Message{{Topic: "order.placed", Payload: []byte("3 apples")}})
	fmt.Println(errs == nil)
	// Output:
	// order.placed 3 apples
	// true
}
