package discard_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/discard"
)

// A message without an error is delivered: this sink only says so.
func ExampleOpen() {
	ctx := context.Background()
	sink, err := discard.Open(discard.Config{}, slog.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sink.Send(ctx, []penstock.Message{{ID: "17", Topic: "order.placed"}}))
	fmt.Println(sink.Close(ctx))
	// Output:
	// []
	// <nil>
}
