package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// countedAtOnce is how many queues one statement counts: it holds locks on all that it reads until it ends, and the server's are few.
const countedAtOnce = 50

// QueueStatus implements driver.QueueStore. A role that is only an operator gets the queues
// that were granted to it. To count jobs it reads them: about a second for some millions.
func (s *Store) QueueStatus(ctx context.Context, names ...string) ([]admin.QueueStatus, error) {
	return s.QueueStatusUpTo(ctx, 0, names...)
}

// QueueStatusUpTo implements driver.QueueStatusCounter. It counts no figure beyond most; 0 means no limit.
// With a most below 0 it counts nothing and returns only the settings.
func (s *Store) QueueStatusUpTo(ctx context.Context, most int, names ...string) ([]admin.QueueStatus, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, scanQueue, statement("queues", s.schema, ""), orNullSlice(names))
	if err != nil {
		return nil, s.explain(err)
	}
	if most < 0 {
		return all, nil
	}
	there := make([]admin.QueueStatus, 0, len(all))
	for len(all) > 0 {
		some := all[:min(countedAtOnce, len(all))]
		all = all[len(some):]
		err := s.within(ctx, func(tx pgx.Tx) error { return s.countJobs(ctx, tx, some, most) })
		if sqlState(err) != "42P01" {
			there = append(there, some...)
		} else { // one was dropped meanwhile
			err = nil
			for i := range some {
				switch one := s.countJobs(ctx, s.pool, some[i:i+1], most); {
				case one == nil:
					there = append(there, some[i])
				case sqlState(one) != "42P01":
					err = one
				}
			}
		}
		if err != nil {
			return nil, s.explain(err)
		}
	}
	if err := s.queueTrouble(ctx, there); err != nil {
		return nil, s.explain(err)
	}
	return there, s.explain(s.queueTokens(ctx, there))
}

// UnreadQueues names the queues that the role may not look at, which QueueStatus leaves out. A later queue needs a grant too.
func (s *Store) UnreadQueues(ctx context.Context) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	names, err := list(ctx, s.pool, pgx.RowTo[string], "select q.name from "+s.table("_queue")+" q where not has_function_privilege(to_regproc("+s.table("_q")+`(format('_%s.cancel', q.name))), 'execute') order by q.name collate "C"`)
	return names, s.explain(err)
}

// queueTokens adds how many jobs the rates of queues let start now. An operator's role may not read that.
func (s *Store) queueTokens(ctx context.Context, queues []admin.QueueStatus) error {
	if !slices.ContainsFunc(queues, func(q admin.QueueStatus) bool { return q.Rate != nil }) {
		return nil
	}
	var may bool
	if err := s.pool.QueryRow(ctx, "select has_table_privilege($1, 'select')", s.table("_group_state")).Scan(&may); err != nil || !may {
		return err
	}
	rows, err := s.pool.Query(ctx, "select q.name, "+s.table("_tokens")+"(("+s.table("_state_of")+"(-q.id, '')).next_at, q.rate, q.per, q.burst) from "+s.table("_queue")+" q where q.rate is not null")
	if err != nil {
		return err
	}
	var (
		of string
		n  int
	)
	_, err = pgx.ForEachRow(rows, []any{&of, &n}, func() error {
		if i := slices.IndexFunc(queues, func(q admin.QueueStatus) bool { return q.Queue == of }); i >= 0 {
			tokens := n
			queues[i].Tokens = &tokens
		}
		return nil
	})
	return err
}

// queueTrouble adds failures in the maintenance of queues' segments, and of the rings that queues share.
// An operator's role may not read that.
func (s *Store) queueTrouble(ctx context.Context, queues []admin.QueueStatus) error {
	var may bool
	if err := s.pool.QueryRow(ctx, "select has_table_privilege($1, 'select') and has_table_privilege($2, 'select')", s.table("_segment"), s.table("_pair")).Scan(&may); err != nil || !may {
		return err
	}
	rows, _ := s.pool.Query(ctx, "select q.name, 'segment ' || g.slot || ': ' || g.trouble from "+s.table("_segment")+" g join "+s.table("_queue")+" q on q.id = g.queue where g.trouble is not null"+
		" union all select null, p.name || ': ' || p.trouble from "+s.table("_pair")+" p where p.trouble is not null order by 1, 2")
	var (
		of   *string // null: of all
		what string
	)
	_, err := pgx.ForEachRow(rows, []any{&of, &what}, func() error {
		for i := range queues {
			if of == nil || *of == queues[i].Queue {
				queues[i].Trouble = append(queues[i].Trouble, what)
			}
		}
		return nil
	})
	return err
}

func scanQueue(row pgx.CollectableRow) (admin.QueueStatus, error) {
	var (
		one                      admin.QueueStatus
		lifo, paused             bool
		maxAttempts, maxRunning  int
		windowMicros, keepMicros int64
		keepBytes                int64
		rate                     rateColumns
		current                  int
		slots                    []int
		bytes                    []int64
	)
	err := row.Scan(&one.Queue, &lifo, &paused, &maxAttempts, &maxRunning, &rate.jobs, &rate.perMicros, &rate.burst, &windowMicros, &keepMicros, &keepBytes, &one.DoneBytes, &current, &slots, &bytes)
	window, keep := time.Duration(windowMicros)*time.Microsecond, time.Duration(keepMicros)*time.Microsecond
	one.Order = penstock.FIFO
	if lifo {
		one.Order = penstock.LIFO
	}
	one.QueueSettings = penstock.QueueSettings{Paused: &paused, MaxAttempts: &maxAttempts, MaxRunning: &maxRunning, DedupWindow: &window}
	if r := rate.rate(); r != (penstock.Rate{}) {
		one.Rate = &r
	}
	if keep > 0 {
		one.KeepDone, one.KeepDoneBytes = &keep, &keepBytes
	}
	one.Segments, one.Bytes = segmentStatus(slots, bytes, current)
	return one, err
}

// QueueGroups implements driver.QueueStore. It counts ready and waiting jobs up to a thousand in each group. To count
// running and delayed jobs and dead letters it reads them.
func (s *Store) QueueGroups(ctx context.Context, queue, after string, most int) ([]admin.GroupStatus, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, func(row pgx.CollectableRow) (g admin.GroupStatus, err error) {
		var (
			age    float64
			limits limitRow
		)
		err = row.Scan(append([]any{&g.Group, &g.Ready, &g.Running, &g.Delayed, &g.Waiting, &g.DeadLetters, &age, &g.More}, limits.columns()...)...)
		g.OldestAge = time.Duration(age * float64(time.Second))
		if l := limits.limits(); l != (admin.GroupLimits{}) {
			g.Limits = &l
		}
		return g, err
	}, "select group_key, ready, running, delayed, waiting, dead, extract(epoch from oldest)::float8, more, "+limitColumns+" from "+s.table("queue_groups")+"($1, $2, $3)", queue, after, most)
	return all, s.queueError(ctx, queue, err)
}

// countJobs fills in how many jobs queues have, up to most of each kind, or all if it is 0.
func (s *Store) countJobs(ctx context.Context, q querier, queues []admin.QueueStatus, most int) error {
	names := make([]string, len(queues))
	for i := range queues {
		names[i] = queues[i].Queue
	}
	rows, _ := q.Query(ctx, "select c.n[1], c.n[2], c.n[3], c.n[4], c.n[5], c.n[6], coalesce(c.n[7], 0) = 1, c.n[8] "+
		"from unnest($1::text[]) with ordinality n(name, i) cross join lateral "+s.table("_count_of")+"(n.name, nullif($2, 0)) c(n) order by n.i", names, most)
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		var (
			of   = &queues[i]
			age  int64
			more bool
		)
		if err := rows.Scan(&of.Ready, &of.Running, &of.Delayed, &of.Waiting, &of.DeadLetters, &age, &more, &of.Expired); err != nil {
			return err
		}
		of.OldestAge = time.Duration(age) * time.Microsecond
		of.Cap(int64(most), more)
	}
	return rows.Err()
}
