package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

var _ driver.QueueStore = (*Store)(nil)

// enterQueue is enter for an operation on one queue.
func (s *Store) enterQueue(ctx context.Context, name string) (*jobQueue, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	var err error
	q := s.db.queues[name]
	if !s.db.migrated {
		err = penstock.WithHint(penstock.ErrNotMigrated, "call Migrate first")
	} else if q == nil {
		err = penstock.WithHint(fmt.Errorf("queue %q: %w", name, penstock.ErrNoQueue), "create it with CreateQueue")
	}
	if err != nil {
		s.db.Unlock()
	}
	return q, err
}

// CreateQueue implements driver.QueueStore.
func (s *Store) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := cmp.Or(penstock.ValidateQueueName(name), order.Validate()); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.db.Unlock()
	switch {
	case !s.db.migrated:
		return penstock.WithHint(penstock.ErrNotMigrated, "call Migrate first")
	case s.db.queues[name] != nil:
		return fmt.Errorf("queue %q: %w", name, penstock.ErrQueueExists)
	case s.db.outboxes[name] != nil:
		return sharesName("queue", name, "an outbox", penstock.ErrOutboxExists)
	}
	s.db.queues[name] = newJobQueue(order)
	return nil
}

// sharesName is the error for a name that belongs to the other kind of thing.
func sharesName(kind, name, of string, exists error) error {
	return penstock.WithHint(fmt.Errorf("%s %q: %s has this name: %w", kind, name, of, exists), "outboxes and queues share their names: choose another")
}

// DropQueue implements driver.QueueStore.
func (s *Store) DropQueue(ctx context.Context, name string) error {
	if _, err := s.enterQueue(ctx, name); err != nil {
		return err
	}
	defer s.db.Unlock()
	delete(s.db.queues, name)
	return nil
}

// SetQueue implements driver.QueueStore.
func (s *Store) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	if err := set.ValidateWithoutHistory(); err != nil {
		return err
	}
	q, err := s.enterQueue(ctx, name)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	change(&q.settings.paused, set.Paused)
	change(&q.settings.maxAttempts, set.MaxAttempts)
	change(&q.settings.maxRunning, set.MaxRunning)
	change(&q.settings.dedupWindow, set.DedupWindow)
	return nil
}

func change[T any](field *T, to *T) {
	if to != nil {
		*field = *to
	}
}

// CancelJobs implements driver.QueueStore.
func (s *Store) CancelJobs(ctx context.Context, name string, ids ...int64) (int, error) {
	q, err := s.enterQueue(ctx, name)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	n := 0
	for _, id := range ids {
		if j := q.jobs[id]; j != nil {
			q.end(j)
			n++
		}
	}
	return n, nil
}
