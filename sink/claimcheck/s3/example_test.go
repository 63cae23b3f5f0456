package s3_test

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/claimcheck"
	"github.com/penstock/penstock/sink/claimcheck/s3"
)

// A consumer opens a message of any broker.
func Example() {
	store, err := s3.Open(claimcheck.Config{Bucket: "payloads", Prefix: "orders", Region: "eu-west-1"})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	handle := func(ctx context.Context, headers map[string]string, body []byte) error {
		payload, err := claimcheck.Open(ctx, headers[penstock.HeaderClaimCheck], body, store.Get)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", payload)
		return nil
	}
	_ = handle(context.Background(), nil, []byte("a small payload has no reference"))
	// Output: a small payload has no reference
}
