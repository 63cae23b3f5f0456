package portable

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

// Status implements penstock.Store.
func (s *Store) Status(ctx context.Context) ([]penstock.OutboxStatus, error) {
	names, err := s.Names(ctx, "outboxes")
	if err != nil {
		return nil, err
	}
	all := []penstock.OutboxStatus{}
	for _, name := range names {
		st, err := s.outboxStatus(ctx, name)
		switch {
		case pgerror.State(err) == "42P01" || isNoOutbox(err): // dropped meanwhile
		case err != nil:
			return nil, s.explain(err)
		default:
			all = append(all, st)
		}
	}
	return all, nil
}

func (s *Store) outboxStatus(ctx context.Context, name string) (penstock.OutboxStatus, error) {
	box, err := s.findOutbox(ctx, s.pool, name, "")
	st := penstock.OutboxStatus{Outbox: name, Retention: box.Retention, Subscriptions: []penstock.SubscriptionStatus{}}
	if err != nil {
		return st, err
	}
	if st.Bytes, err = s.bytes(ctx, s.sql("{table}", name)); err != nil {
		return st, err
	}
	rows, err := s.pool.Query(ctx, s.sql("status", name), box.ID)
	if err != nil {
		return st, err
	}
	var (
		sub                 penstock.SubscriptionStatus
		id                  int64
		leased              bool
		since, down, oldest *time.Time
		until               time.Time
		why                 string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &sub.Subscription, &sub.Settled, &sub.Rate, &leased, &sub.Holder, &since, &sub.Epoch, &until, &down, &why,
		&sub.DeadLetters, &sub.Parked, &sub.ParkedKeys, &sub.HeldKeys, &sub.Replaying, &sub.Backlog, &oldest}, func() error {
		one := sub
		if leased {
			one.HolderSince, one.LeaseUntil = timeOf(since), until.UTC()
			if down != nil {
				one.SinkDown, one.SinkError = down.UTC(), why
			}
		} else {
			one.Holder = ""
		}
		if oldest != nil {
			one.OldestAge = max(time.Since(*oldest), 1)
		}
		st.Subscriptions = append(st.Subscriptions, one)
		return nil
	})
	return st, err
}

// bytes are what a table takes with its indexes, 0 where the engine does not tell.
func (s *Store) bytes(ctx context.Context, table string) (n int64, err error) {
	if !s.dialect().unsized {
		err = s.pool.QueryRow(ctx, "select pg_total_relation_size($1::regclass)", table).Scan(&n)
	}
	return n, err
}

// Names lists what there is: "outboxes", "queues", "inboxes" or "subscriptions", in order of their bytes.
func (s *Store) Names(ctx context.Context, of string) (names []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	column := "name"
	if of == "inboxes" {
		column = "consumer"
	}
	rows, err := s.pool.Query(ctx, s.sql(`select distinct `+column+` {collate} as name from {schema}.`+of+` order by name`, ""))
	if err != nil {
		return nil, s.explain(err)
	}
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return names, s.explain(err)
}
