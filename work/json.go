package work

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/penstock/penstock"
)

// JSON makes a handler of one that takes the job's payload as encoding/json reads it. A payload that is not
// a T is a dead letter with the reason: another attempt would read the same.
func JSON[T any](h func(ctx context.Context, v T, job penstock.Job) error) Handler {
	return func(ctx context.Context, job penstock.Job) error {
		var v T
		if err := json.Unmarshal(job.Payload, &v); err != nil {
			return penstock.Permanent(fmt.Errorf("reading the payload: %w", err))
		}
		return h(ctx, v, job)
	}
}
