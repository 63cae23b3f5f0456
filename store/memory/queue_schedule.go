package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
)

// SetSchedule implements driver.QueueStore.
func (s *Store) SetSchedule(ctx context.Context, set penstock.Schedule) error {
	if err := set.Validate(); err != nil {
		return err
	}
	q, err := s.enterQueue(ctx, set.Queue)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	if set.Next, err = cron.Next(set.Cron, s.db.now()); err != nil {
		return err
	}
	set.Job.Headers, set.Job.Payload = headers(set.Job.Headers), slices.Clone(set.Job.Payload)
	q.schedules[set.Name] = &set
	return nil
}

// DropSchedule implements driver.QueueStore.
func (s *Store) DropSchedule(ctx context.Context, queue, name string) error {
	q, err := s.enterQueue(ctx, queue)
	if err != nil {
		return err
	}
	defer s.db.Unlock()
	if q.schedules[name] == nil {
		return fmt.Errorf("schedule %q of queue %q: %w", name, queue, penstock.ErrNoSchedule)
	}
	delete(q.schedules, name)
	return nil
}

// Schedules implements driver.QueueStore.
func (s *Store) Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error) {
	q, err := s.enterQueue(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	all := []penstock.Schedule{}
	for _, sch := range q.schedules {
		c := *sch
		c.Job.Headers, c.Job.Payload = headers(c.Job.Headers), slices.Clone(c.Job.Payload)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b penstock.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
