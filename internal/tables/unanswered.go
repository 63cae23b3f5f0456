package tables

import (
	"context"
	"sync"

	"github.com/penstock/penstock/internal/retry"
)

// unanswered are claims whose answers were lost: whoever asked does not know what was claimed.
type unanswered struct {
	mu      sync.Mutex
	numbers []int64
}

func (u *unanswered) take() (numbers []int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	numbers, u.numbers = u.numbers, nil
	return numbers
}

func (u *unanswered) note(numbers []int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.numbers = append(u.numbers, numbers...)
}

// Claiming runs a round trip of a claim. If its answer is lost, what it claimed is not left leased until the leases end: the next claim of the queue
// gives that back first, by the numbers that ask returned, and is tried at once. Not if it ends jobs, too: what became of these their worker finds out.
func (q *QueueRow) Claiming(ctx context.Context, retries *retry.Counter, acks []int64, ask func(lost []int64) (numbers []int64, err error)) error {
	one := func(int64) error {
		lost := q.lost.take()
		numbers, err := ask(lost)
		if err != nil {
			q.lost.note(lost)
		}
		if retry.Lost(err) || err != nil && ctx.Err() != nil {
			q.lost.note(numbers)
		}
		return err
	}
	if len(acks) > 0 {
		return retries.Do(ctx, func() error { return one(0) })
	}
	return retries.Once(ctx, one, func(context.Context, int64) (bool, error) { return false, nil })
}
