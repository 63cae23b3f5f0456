package measure

import (
	"context"
	"time"
)

// steadily calls do with 0, 1, 2 … at the given number of calls per second, until it returns false
// or an error. It keeps to the clock: a slow call does not slow the rate, unless all writers are
// busy. The calls whose numbers are equal modulo writers are made one after another.
func steadily(ctx context.Context, writers, perSecond int, do func(i int) (more bool, err error)) error {
	interval := time.Second / time.Duration(perSecond)
	start := time.Now()
	return together(ctx, writers, func(ctx context.Context, w int) error {
		for i := w; ; i += writers {
			if sleepUntil(ctx, start.Add(time.Duration(i)*interval)) != nil {
				return nil
			}
			if more, err := do(i); err != nil || !more {
				return err
			}
		}
	})
}
