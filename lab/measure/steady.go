package measure

import (
	"context"
	"sync"
	"time"
)

// steadily calls do with 0, 1, 2 … at the given number of calls per second, until it returns false
// or an error. It keeps to the clock: a slow call does not slow the rate, unless all writers are
// busy. The calls whose numbers are equal modulo writers are made one after another.
func steadily(ctx context.Context, writers, perSecond int, do func(i int) (more bool, err error)) error {
	interval := time.Second / time.Duration(perSecond)
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; ; i += writers {
				if sleepUntil(ctx, start.Add(time.Duration(i)*interval)) != nil {
					return
				}
				more, err := do(i)
				if err != nil {
					cancel(err) // the others need not continue
				}
				if err != nil || !more {
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
