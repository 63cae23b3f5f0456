package work

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock/penstock"
)

// JSON makes a Handler of a function that takes the job's payload decoded by encoding/json. A job whose payload
// is not a T becomes a dead letter at once, because another attempt would read the same payload.
func JSON[T any](h func(ctx context.Context, v T, job penstock.Job) error) Handler {
	return func(ctx context.Context, job penstock.Job) error {
		var v T
		if err := json.Unmarshal(job.Payload, &v); err != nil {
			return penstock.Permanent(fmt.Errorf("reading the payload: %w", err))
		}
		return h(ctx, v, job)
	}
}
