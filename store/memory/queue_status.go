package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// QueueGroups implements driver.QueueStore.
func (s *Store) QueueGroups(ctx context.Context, name, after string, most int) ([]admin.GroupStatus, error) {
	q, err := s.enterQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	now := s.db.now()
	of := map[string]*admin.GroupStatus{}
	group := func(name string) *admin.GroupStatus {
		if of[name] == nil {
			of[name] = &admin.GroupStatus{Group: name}
		}
		return of[name]
	}
	for _, j := range q.jobs {
		group(j.Group).Waiting++ // for all that is not more than that
	}
	for l, jobs := range q.ready {
		g := group(l.group)
		g.Ready, g.Waiting = g.Ready+int64(len(jobs)), g.Waiting-int64(len(jobs))
		for _, j := range jobs {
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
	for _, j := range q.scheduled {
		g := group(j.Group)
		g.Delayed, g.Waiting = g.Delayed+1, g.Waiting-1
	}
	for _, d := range q.dead {
		group(d.Group).DeadLetters++
	}
	all := []admin.GroupStatus{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if (after == "" || name > after) && len(all) < most {
			all = append(all, *of[name])
		}
	}
	return all, nil
}

// QueueStatus implements driver.QueueStore.
func (s *Store) QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.db.Unlock()
	if !s.db.migrated {
		return nil, penstock.ErrNotMigrated
	}
	all := []admin.QueueStatus{}
	for name, q := range s.db.queues {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		set := q.settings
		st := admin.QueueStatus{
			Queue: name, Order: q.order, Bytes: q.size(),
			QueueSettings: penstock.QueueSettings{Paused: &set.paused, MaxAttempts: &set.maxAttempts, MaxRunning: &set.maxRunning, DedupWindow: &set.dedupWindow},
			Delayed:       int64(len(q.scheduled)), DeadLetters: int64(len(q.dead)),
		}
		for _, j := range q.leases {
			if s.db.now().Before(j.LeaseUntil) {
				st.Running++
			} else { // the next claim finds it
				st.Ready++
			}
		}
		for _, jobs := range q.ready {
			st.Ready += int64(len(jobs))
			for _, j := range jobs {
				st.OldestAge = max(st.OldestAge, s.db.now().Sub(j.CreatedAt))
			}
		}
		st.Waiting = int64(len(q.jobs)) - st.Ready - st.Running - st.Delayed
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b admin.QueueStatus) int { return cmp.Compare(a.Queue, b.Queue) })
	return all, nil
}
