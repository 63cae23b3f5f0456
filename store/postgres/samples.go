package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

var _ driver.SampleStore = (*Store)(nil)

// Samples implements driver.SampleStore. A role gets those of the queues that it operates, and those of subscriptions if it relays.
func (s *Store) Samples(ctx context.Context, last time.Duration) (all []admin.Samples, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	var relays, operates bool
	if err := s.pool.QueryRow(ctx, "select has_function_privilege($1, 'execute'), has_table_privilege($2, 'select')", s.table("_subscription_samples")+"(interval)", s.table("_sample")).Scan(&relays, &operates); err != nil {
		return nil, s.explain(err)
	}
	for _, of := range []struct {
		text string
		may  bool
	}{{"samples_of_subscriptions", relays}, {"samples_of_queues", operates}} {
		if !of.may {
			continue
		}
		rows, _ := s.pool.Query(ctx, statement(of.text, s.schema, ""), last.Seconds())
		var (
			in     string
			of     *string
			at     time.Time
			oldest float64
			p      admin.Sample
		)
		if _, err = pgx.ForEachRow(rows, []any{&in, &of, &at, &p.In, &p.Out, &p.Failed, &p.Dead, &oldest, &p.Done}, func() error {
			one := admin.Samples{Queue: in}
			if of != nil {
				one = admin.Samples{Outbox: in, Subscription: *of}
			}
			if n := len(all); n == 0 || all[n-1].Queue != one.Queue || all[n-1].Outbox != one.Outbox || all[n-1].Subscription != one.Subscription {
				all = append(all, one)
			}
			p.At, p.OldestAge = at.UTC(), time.Duration(oldest*float64(time.Second))
			all[len(all)-1].Points = append(all[len(all)-1].Points, p)
			return nil
		}); err != nil {
			return nil, s.explain(err)
		}
	}
	return all, nil
}
