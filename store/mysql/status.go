package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/penstock/penstock"
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
		case number(err) == noSuchTable || isNoOutbox(err): // dropped meanwhile
		case err != nil:
			return nil, s.explain(err)
		default:
			all = append(all, st)
		}
	}
	return all, nil
}

func (s *Store) outboxStatus(ctx context.Context, name string) (penstock.OutboxStatus, error) {
	box, err := s.findOutbox(ctx, s, name, "")
	st := penstock.OutboxStatus{Outbox: name, Retention: box.Retention, Subscriptions: []penstock.SubscriptionStatus{}}
	if err != nil {
		return st, err
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error { return rows.Scan(&st.Bytes) },
		"select coalesce(sum(data_length + index_length), 0) from information_schema.tables where table_schema = ? and table_name = ?", s.opts.Schema, tableName("outbox", name))
	b.read(func(rows *sql.Rows) error {
		var (
			sub                 penstock.SubscriptionStatus
			id                  int64
			leased              bool
			since, down, oldest sql.NullTime
			until, now          time.Time
			why                 string
		)
		err := rows.Scan(&id, &sub.Subscription, &sub.Settled, &sub.Rate, &leased, &sub.Holder, &since, &sub.Epoch, &until, &down, &why,
			&sub.DeadLetters, &sub.Parked, &sub.ParkedKeys, &sub.HeldKeys, &sub.Replaying, &sub.Backlog, &oldest, &now)
		if leased {
			sub.HolderSince, sub.LeaseUntil = timeOf(since), until.UTC()
			if down.Valid {
				sub.SinkDown, sub.SinkError = down.Time.UTC(), why
			}
		} else {
			sub.Holder = ""
		}
		if oldest.Valid {
			sub.OldestAge = max(now.Sub(oldest.Time), 1)
		}
		st.Subscriptions = append(st.Subscriptions, sub)
		return err
	}, s.sql("status", name, words{"outbox": box.ID}))
	return st, s.ask(ctx, b)
}

// Names lists what there is: "outboxes", "queues", "inboxes" or "subscriptions", in order of their bytes.
func (s *Store) Names(ctx context.Context, of string) (names []string, err error) {
	if err := s.use(ctx); err != nil {
		return nil, err
	}
	column := "name"
	if of == "inboxes" {
		column = "consumer"
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, s.sql("select distinct "+column+" as name from {schema}."+of+" order by name", "", nil))
	return names, s.explain(s.ask(ctx, b))
}
