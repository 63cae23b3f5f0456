package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/penstock/penstock/admin"
)

// segment is a segment as Maintain looks at it; SegmentStatus.Bytes is the total.
type segment struct {
	admin.SegmentStatus
	rows  int64 // bytes of heap: 0 when empty
	table int64 // with TOAST, without indexes: by this rings are rotated
}

// segments reads the ring's state and the sequence's value.
func (s *Store) segments(ctx context.Context, outbox string) (high int64, current *segment, all []segment, err error) {
	quoted := func(suffix string) string { return pgx.Identifier{s.schema, "_" + outbox + suffix}.Sanitize() }
	all, err = list(ctx, s.pool, func(row pgx.CollectableRow) (seg segment, err error) {
		return seg, row.Scan(&high, &seg.Slot, &seg.rows, &seg.table, &seg.Bytes, &seg.Current)
	}, "select coalesce(pg_sequence_last_value($2::text::regclass), 0), slot, pg_relation_size(oid), pg_table_size(oid), pg_total_relation_size(oid), "+
		"slot = pg_sequence_last_value($3::text::regclass) from "+s.table("_segments")+"($1) order by slot", outbox, quoted(".seq"), quoted(".slot"))
	if sqlState(err) == "42P01" {
		return 0, nil, nil, noOutbox(outbox)
	}
	if err != nil {
		return 0, nil, nil, s.explain(err)
	}
	for i := range all {
		if all[i].Current {
			current = &all[i]
		}
	}
	return high, current, all, nil
}

// Status implements driver.Store. Counting a backlog reads its index entries and
// rows: about a second for some millions.
func (s *Store) Status(ctx context.Context) ([]admin.OutboxStatus, error) {
	return s.StatusUpTo(ctx, 0)
}

// StatusUpTo implements driver.StatusCounter. It counts no figure beyond most; 0 means no limit.
func (s *Store) StatusUpTo(ctx context.Context, most int) ([]admin.OutboxStatus, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, scanOutbox, statement("outboxes", s.schema, ""))
	if err != nil {
		return nil, s.explain(err)
	}
	subscriptions, err := s.subscriptionsOf(ctx, s.pool, "")
	if err != nil {
		return nil, s.explain(err)
	}
	there := make([]admin.OutboxStatus, 0, len(all))
outboxes:
	for _, status := range all {
		for _, sub := range subscriptions {
			if sub.Outbox != status.Outbox {
				continue
			}
			one, err := s.subscriptionStatus(ctx, status.Outbox, sub.ID, most)
			switch {
			case sqlState(err) == "42P01":
				continue outboxes // dropped meanwhile
			case err != nil:
				return nil, s.explain(err)
			}
			one.Subscription = sub.Name
			if one.Holder != "" && one.Epoch == sub.SinkEpoch && sub.SinkDown != nil {
				one.SinkDown, one.SinkError = sub.SinkDown.UTC(), sub.SinkError
			}
			status.Subscriptions = append(status.Subscriptions, one)
		}
		if len(status.Subscriptions) == 0 {
			switch status.UnreadAge, err = s.unreadAge(ctx, status.Outbox); {
			case sqlState(err) == "42P01":
				continue // dropped meanwhile
			case err != nil:
				return nil, s.explain(err)
			}
		}
		there = append(there, status)
	}
	return there, nil
}

// unreadAge is the age of the first message of an outbox; 0 without one.
func (s *Store) unreadAge(ctx context.Context, outbox string) (time.Duration, error) {
	var age float64
	err := s.pool.QueryRow(ctx, "select coalesce((select extract(epoch from clock_timestamp() - created_at) from "+s.table(outbox)+" order by seq limit 1), 0)::float8").Scan(&age)
	return time.Duration(age * float64(time.Second)), err
}

// subscription is a row of _subscription.
type subscription struct {
	ID           int64
	Outbox, Name string
	SinkEpoch    int64
	SinkDown     *time.Time
	SinkError    string
}

// subscriptionsOf lists the subscriptions of an outbox, or of all, by name.
func (s *Store) subscriptionsOf(ctx context.Context, on querier, outbox string) ([]subscription, error) {
	return list(ctx, on, pgx.RowToStructByPos[subscription], "select id, outbox, name, coalesce(sink_epoch, 0), sink_down, coalesce(sink_error, '') from "+
		s.table("_subscription")+" where outbox = $1 or $1 = '' order by outbox, name", outbox)
}

func scanOutbox(row pgx.CollectableRow) (admin.OutboxStatus, error) {
	var (
		one       = admin.OutboxStatus{Subscriptions: []admin.SubscriptionStatus{}}
		ageMicros int64
		current   int
		slots     []int
		bytes     []int64
	)
	err := row.Scan(&one.Outbox, &ageMicros, &one.Retention.Bytes, &current, &slots, &bytes, &one.Published)
	one.Retention.Age = time.Duration(ageMicros) * time.Microsecond
	one.Segments, one.Bytes = segmentStatus(slots, bytes, current)
	return one, err
}

// segmentStatus is that of a ring's segments, and their size together.
func segmentStatus(slots []int, bytes []int64, current int) (all []admin.SegmentStatus, sum int64) {
	for i, slot := range slots {
		all = append(all, admin.SegmentStatus{Slot: slot, Bytes: bytes[i], Current: slot == current})
		sum += bytes[i]
	}
	return all, sum
}

func (s *Store) subscriptionStatus(ctx context.Context, outbox string, id int64, most int) (status admin.SubscriptionStatus, err error) {
	upTo := pgtype.Int8{Int64: int64(most), Valid: most > 0}
	h, _, err := s.headOf(ctx, s.pool, id)
	if err != nil {
		return status, err
	}
	status.Settled, status.Epoch = h.count, h.epoch
	if !h.expired {
		status.Holder, status.LeaseUntil, status.HolderSince = h.holder, h.until.UTC(), h.since.UTC()
	}
	// In a transaction, for settings that keep the plan off statistics.
	err = s.within(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off; set local max_parallel_workers_per_gather = 0"); err != nil {
			return err
		}
		c, age := h.cursor, 0.0
		if err := tx.QueryRow(ctx, statement("status", s.schema, outbox), c.end().xip(), c.bound(), c.done.snap, c.end().snap, c.posOrEnd(), string(multirange(c.ahead)), upTo).
			Scan(&status.Backlog, &age); err != nil {
			return err
		}
		status.OldestAge = time.Duration(age * float64(time.Second))
		var retries int64
		if err := tx.QueryRow(ctx, "select (select count(*) from (select from "+s.table("_dead_letter")+" where subscription = $1 and not retry limit $2) n), "+
			"(select count(*) from (select from "+s.table("_dead_letter")+" where subscription = $1 and retry limit $2) n)", id, upTo).Scan(&status.DeadLetters, &retries); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, statement("parked_status", s.schema, outbox), id, upTo).Scan(&status.Parked, &status.ParkedKeys, &status.HeldKeys, &age); err != nil {
			return err
		}
		status.ParkedAge = time.Duration(age * float64(time.Second))
		// A dead letter that was sent back is parked alone.
		status.Parked += retries
		status.ParkedKeys += retries
		status.Cap(int64(most))
		if err := tx.QueryRow(ctx, "select exists (select from "+s.table("_replay")+" where subscription = $1)", id).Scan(&status.Replaying); err != nil {
			return err
		}
		return tx.QueryRow(ctx, statement("rate", s.schema, outbox), id, h.count).Scan(&status.Rate)
	})
	return status, err
}

// within is a transaction whose statements the server ends when ctx does. If this process dies meanwhile,
// nothing else would end them.
func (s *Store) within(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if end, ok := ctx.Deadline(); ok {
			if _, err := tx.Exec(ctx, fmt.Sprintf("set local statement_timeout = %d", max(time.Until(end).Milliseconds(), 1))); err != nil {
				return err
			}
		}
		return f(tx)
	})
}
