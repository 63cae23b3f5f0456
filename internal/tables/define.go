package tables

import (
	"context"
	"time"

	"github.com/penstock/penstock/internal/retry"
)

// Define runs a statement that defines something, again for a minute while it collides with another session that defines the same.
func Define(ctx context.Context, run func() error) error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := run()
		if !retry.Collided(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
