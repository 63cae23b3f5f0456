package claimcheck_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/sink/claimcheck"
)

// received stands for a broker.
type received struct{ driver.Sink }

func (received) Send(ctx context.Context, msgs []penstock.Message) []error {
	for _, m := range msgs {
		payload, err := claimcheck.Open(ctx, m.Headers[penstock.HeaderClaimCheck], m.Payload, claimcheck.Directory(os.TempDir()).Get)
		fmt.Println(m.ID, len(payload), "bytes,", m.Headers[penstock.HeaderClaimCheck] != "", err)
	}
	return nil
}

// A relay's sink stores what is larger than 1 KiB, and a consumer opens it.
func ExampleWrap() {
	payloads := claimcheck.Directory(os.TempDir())
	sink := claimcheck.Wrap(received{}, payloads, "orders", 1<<10)
	sink.Send(context.Background(), []penstock.Message{
		{ID: "m1", Payload: []byte("small")},
		{ID: "m2", Payload: []byte(strings.Repeat("large", 1000))},
	})
	// Output:
	// m1 5 bytes, false <nil>
	// m2 5000 bytes, true <nil>
}
