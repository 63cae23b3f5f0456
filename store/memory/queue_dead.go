package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/penstock/penstock/admin"
)

// DeadJobs implements driver.QueueStore.
func (s *Store) DeadJobs(ctx context.Context, query admin.DeadJobQuery) ([]admin.DeadJob, error) {
	q, err := s.enterQueue(ctx, query.Queue)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	var found []admin.DeadJob
	for _, d := range q.chosen(&query) {
		found = append(found, admin.DeadJob{Job: d.copy(), Failures: slices.Clone(d.failures), At: d.at})
	}
	return found, nil
}

// RetryDeadJobs implements driver.QueueStore.
func (s *Store) RetryDeadJobs(ctx context.Context, query admin.DeadJobQuery) (int, error) {
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

// DiscardDeadJobs implements driver.QueueStore.
func (s *Store) DiscardDeadJobs(ctx context.Context, query admin.DeadJobQuery) (int, error) {
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
func (q *jobQueue) chosen(query *admin.DeadJobQuery) []*deadJob {
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

func (d *deadJob) matches(q *admin.DeadJobQuery) bool {
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
