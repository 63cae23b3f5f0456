package tables

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// leastScanned is how many jobs of a queue are looked at, at least, where counts are bounded.
const leastScanned = 10_000

// QueueStatus implements driver.QueueStore. It counts jobs one by one.
func (s *Queues) QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error) {
	return s.QueueStatusUpTo(ctx, 0, names...)
}

// QueueStatusUpTo implements driver.QueueStatusCounter. It reads no more than some jobs of a queue, and counts no figure beyond
// most; 0 means no limit. With a most below 0 it counts nothing, and returns the settings.
func (s *Queues) QueueStatusUpTo(ctx context.Context, most int, queues ...string) ([]admin.QueueStatus, error) {
	if queues = slices.Sorted(slices.Values(queues)); len(queues) == 0 {
		var err error
		if queues, err = names(ctx, s.on, "queues"); err != nil {
			return nil, err
		}
	}
	all := []admin.QueueStatus{}
	for _, name := range queues {
		st, err := s.queueStatus(ctx, name, most)
		switch {
		case errors.Is(err, penstock.ErrNoQueue): // dropped meanwhile
		case err != nil:
			return nil, err
		default:
			all = append(all, st)
		}
	}
	return all, nil
}

func (s *Queues) queueStatus(ctx context.Context, name string, most int) (admin.QueueStatus, error) {
	st := admin.QueueStatus{Queue: name, Order: penstock.FIFO}
	q := &QueueRow{Name: name, Table: s.on.JobsTable(name)}
	var there, lifo, paused bool
	var attempts, running int
	var window time.Duration
	var whole string
	b := new(Batch).Row(&there, `select q.id, q.lifo, q.paused, q.max_attempts, q.max_running, q.dedup_window, q.expired, coalesce((select p.policy from {schema}.group_policies p where p.queue_id = q.id and p.whole), '')
		from {schema}.queues q where q.name = {name}`, Args{"name": name}, &q.ID, &lifo, &paused, &attempts, &running, &window, &st.Expired, &whole)
	if err := s.on.Run(ctx, b); err != nil {
		return st, err
	}
	if !there {
		return st, NoQueue(name)
	}
	if lifo {
		st.Order = penstock.LIFO
	}
	q.Seen = NewSeen(lifo)
	st.QueueSettings = penstock.QueueSettings{Paused: &paused, MaxAttempts: &attempts, MaxRunning: &running, DedupWindow: &window}
	if whole != "" {
		var p penstock.GroupPolicy
		_ = json.Unmarshal([]byte(whole), &p) // one that was written by hand limits nothing
		st.Rate = &p.Rate
	}
	if most < 0 {
		return st, nil
	}
	scan := int64(math.MaxInt64)
	if most > 0 {
		scan = max(leastScanned, 2*int64(most))
	}
	var err error
	if st.Rate != nil && st.Rate.Jobs > 0 {
		if st.Tokens, err = s.queueTokens(ctx, q, *st.Rate); err != nil {
			return st, err
		}
	}
	if st.Bytes, err = s.on.JobsBytes(ctx, name); err != nil {
		return st, s.orNoQueue(err, name)
	}
	groups, err := s.groups(ctx, q, "", 0, scan)
	for _, g := range groups {
		st.Ready, st.Running, st.Delayed, st.Waiting = st.Ready+g.Ready, st.Running+g.Running, st.Delayed+g.Delayed, st.Waiting+g.Waiting
		st.DeadLetters, st.OldestAge = st.DeadLetters+g.DeadLetters, max(st.OldestAge, g.OldestAge)
	}
	capped := st.Ready+st.Running+st.Delayed+st.Waiting+st.DeadLetters >= scan
	if st.Cap(int64(most), capped); capped {
		st.AtLeast = append(st.AtLeast, slices.DeleteFunc([]string{"running", "delayed", "dead_letters"}, func(name string) bool { return slices.Contains(st.AtLeast, name) })...)
	}
	return st, err
}

// QueueGroups implements driver.QueueStore.
func (s *Queues) QueueGroups(ctx context.Context, name, after string, most int) ([]admin.GroupStatus, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	q, err := s.lookAgain(ctx, name)
	if err != nil {
		return nil, err
	}
	groups, err := s.groups(ctx, q, after, most, math.MaxInt64)
	if err == nil {
		err = s.limits(ctx, q, groups)
	}
	return groups, err
}

// groups are those after one, or all; most is 0 for any number. It looks at no more jobs than scan.
func (s *Queues) groups(ctx context.Context, q *QueueRow, after string, most int, scan int64) (all []admin.GroupStatus, err error) {
	if most <= 0 {
		most = math.MaxInt64
	}
	return all, s.orNoQueue(s.on.Run(ctx, new(Batch).Rows(func(scan Scan) error {
		var g admin.GroupStatus
		var oldest *time.Time
		var now time.Time
		err := scan(&g.Group, &g.Ready, &g.Running, &g.Delayed, &g.Waiting, &g.DeadLetters, &oldest, &now)
		if oldest != nil {
			g.OldestAge = max(now.Sub(*oldest), 1)
		}
		all = append(all, g)
		return err
	}, "queue_groups", q.Args(Args{"all": after == "", "after": after, "most": most, "scan": scan}))), q.Name)
}
