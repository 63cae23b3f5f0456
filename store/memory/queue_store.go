package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
)

var _ penstock.QueueStore = (*Store)(nil)

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

// CreateQueue implements penstock.QueueStore.
func (s *Store) CreateQueue(ctx context.Context, name string, order penstock.QueueOrder) error {
	if err := penstock.ValidateQueueName(name); err != nil {
		return err
	}
	if order != penstock.FIFO && order != penstock.LIFO {
		return &penstock.FieldError{Field: "order", Problem: fmt.Sprintf("is %q", order), Hint: "use fifo or lifo"}
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

// DropQueue implements penstock.QueueStore.
func (s *Store) DropQueue(ctx context.Context, name string) error {
	if _, err := s.enterQueue(ctx, name); err != nil {
		return err
	}
	defer s.db.Unlock()
	delete(s.db.queues, name)
	return nil
}

// SetQueue implements penstock.QueueStore.
func (s *Store) SetQueue(ctx context.Context, name string, set penstock.QueueSettings) error {
	switch {
	case set.MaxAttempts != nil && *set.MaxAttempts < 1:
		return &penstock.FieldError{Field: "max_attempts", Problem: fmt.Sprintf("is %d", *set.MaxAttempts), Hint: "use 1 or more"}
	case set.MaxRunning != nil && *set.MaxRunning < 0:
		return &penstock.FieldError{Field: "max_running", Problem: fmt.Sprintf("is %d", *set.MaxRunning), Hint: "use 0 for no limit"}
	case set.DedupWindow != nil && *set.DedupWindow < 0:
		return &penstock.FieldError{Field: "dedup_window", Problem: fmt.Sprintf("is %s", *set.DedupWindow), Hint: "use a positive time"}
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

// CancelJobs implements penstock.QueueStore.
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

// DeadJobs implements penstock.QueueStore.
func (s *Store) DeadJobs(ctx context.Context, query penstock.DeadJobQuery) ([]penstock.DeadJob, error) {
	q, err := s.enterQueue(ctx, query.Queue)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	var found []penstock.DeadJob
	for _, d := range q.chosen(&query) {
		found = append(found, penstock.DeadJob{Job: d.copy(), Failures: slices.Clone(d.failures), At: d.at})
	}
	return found, nil
}

// RetryDeadJobs implements penstock.QueueStore.
func (s *Store) RetryDeadJobs(ctx context.Context, query penstock.DeadJobQuery) (int, error) {
	q, err := s.enterQueue(ctx, query.Queue)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	chosen := q.chosen(&query)
	for _, d := range chosen {
		delete(q.dead, d.ID)
		j := d.job
		q.seq++
		j.place, j.due = q.seq, s.db.now() // its attempts count: the next may be the last
		q.add(&j, s.db.now())
	}
	return len(chosen), nil
}

// DiscardDeadJobs implements penstock.QueueStore.
func (s *Store) DiscardDeadJobs(ctx context.Context, query penstock.DeadJobQuery) (int, error) {
	q, err := s.enterQueue(ctx, query.Queue)
	if err != nil {
		return 0, err
	}
	defer s.db.Unlock()
	chosen := q.chosen(&query)
	for _, d := range chosen {
		delete(q.dead, d.ID)
	}
	return len(chosen), nil
}

// chosen returns the dead letters that query describes, by id.
func (q *jobQueue) chosen(query *penstock.DeadJobQuery) []*deadJob {
	var found []*deadJob
	for _, d := range q.dead {
		if d.matches(query) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b *deadJob) int { return cmp.Compare(a.ID, b.ID) })
	if query.Limit > 0 {
		found = found[:min(query.Limit, len(found))]
	}
	return found
}

func (d *deadJob) matches(q *penstock.DeadJobQuery) bool {
	switch {
	case len(q.IDs) > 0 && !slices.Contains(q.IDs, d.ID),
		q.Key != "" && q.Key != d.Key,
		q.Group != "" && q.Group != d.Group,
		!strings.Contains(lastError(d.failures), q.Error),
		!q.DiedBefore.IsZero() && !d.at.Before(q.DiedBefore),
		!q.DiedAfter.IsZero() && !d.at.After(q.DiedAfter),
		q.AfterID != 0 && d.ID <= q.AfterID:
		return false
	}
	return true
}

// SetSchedule implements penstock.QueueStore.
func (s *Store) SetSchedule(ctx context.Context, set penstock.Schedule) error {
	if set.Name == "" {
		return &penstock.FieldError{Field: "name", Problem: "is empty", Hint: "name the schedule"}
	}
	if err := set.Job.Validate(); err != nil {
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

// DropSchedule implements penstock.QueueStore.
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

// Schedules implements penstock.QueueStore.
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

// QueueGroups implements penstock.QueueStore.
func (s *Store) QueueGroups(ctx context.Context, name, after string, most int) ([]penstock.GroupStatus, error) {
	q, err := s.enterQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	now := s.db.now()
	of := map[string]*penstock.GroupStatus{}
	group := func(name string) *penstock.GroupStatus {
		if of[name] == nil {
			of[name] = &penstock.GroupStatus{Group: name}
		}
		return of[name]
	}
	for _, j := range q.jobs {
		group(j.Group).Waiting++ // for all that is not more than that
	}
	for l, line := range q.ready {
		g := group(l.group)
		g.Ready, g.Waiting = g.Ready+int64(len(line)), g.Waiting-int64(len(line))
		for _, j := range line {
			g.OldestAge = max(g.OldestAge, now.Sub(j.CreatedAt))
		}
	}
	for _, j := range q.leases {
		g := group(j.Group)
		if g.Waiting--; now.Before(j.LeaseUntil) {
			g.Running++
		} else { // the next claim finds it
			g.Ready++
		}
	}
	for _, j := range q.later {
		g := group(j.Group)
		g.Delayed, g.Waiting = g.Delayed+1, g.Waiting-1
	}
	for _, d := range q.dead {
		group(d.Group).DeadLetters++
	}
	all := []penstock.GroupStatus{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if (after == "" || name > after) && len(all) < most {
			all = append(all, *of[name])
		}
	}
	return all, nil
}

// QueueStatus implements penstock.QueueStore.
func (s *Store) QueueStatus(ctx context.Context) ([]penstock.QueueStatus, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	if !s.db.migrated {
		return nil, penstock.ErrNotMigrated
	}
	all := []penstock.QueueStatus{}
	for name, q := range s.db.queues {
		set := q.settings
		st := penstock.QueueStatus{
			Queue: name, Order: q.order, Bytes: q.size(),
			QueueSettings: penstock.QueueSettings{Paused: &set.paused, MaxAttempts: &set.maxAttempts, MaxRunning: &set.maxRunning, DedupWindow: &set.dedupWindow},
			Delayed:       int64(len(q.later)), DeadLetters: int64(len(q.dead)),
		}
		for _, j := range q.leases {
			if s.db.now().Before(j.LeaseUntil) {
				st.Running++
			} else { // the next claim finds it
				st.Ready++
			}
		}
		for _, line := range q.ready {
			st.Ready += int64(len(line))
			for _, j := range line {
				st.OldestAge = max(st.OldestAge, s.db.now().Sub(j.CreatedAt))
			}
		}
		st.Waiting = int64(len(q.jobs)) - st.Ready - st.Running - st.Delayed
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b penstock.QueueStatus) int { return cmp.Compare(a.Queue, b.Queue) })
	return all, nil
}
