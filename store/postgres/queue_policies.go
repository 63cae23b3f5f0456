package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

var (
	_ driver.GroupStore  = (*Store)(nil)
	_ driver.GroupHolder = (*Queue)(nil)
)

// SetGroup implements driver.GroupStore. An operator's privileges are enough.
func (s *Store) SetGroup(ctx context.Context, queue string, p penstock.GroupPolicy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	rate := &p.Rate
	if *rate == (penstock.Rate{}) {
		rate = nil
	}
	args := append([]any{queue, p.Group, p.MaxRunning, p.Weight}, rateArgs(rate)...)
	return s.onQueue(ctx, queue, "select "+s.table("set_group")+"($1, $2, max_running => nullif($3, 0), weight => nullif($4, 0), rate => $5, per => $6, burst => nullif($7, 0))", args...)
}

// HoldGroup implements driver.GroupStore. A worker's privileges are enough.
func (s *Store) HoldGroup(ctx context.Context, queue, group string, d time.Duration, reason string) error {
	if err := penstock.ValidateHold(group, d, reason); err != nil {
		return err
	}
	if d > 0 {
		d = atLeastOne(d)
	}
	return s.onQueue(ctx, queue, "select "+s.table("hold_group")+"($1, $2, $3, nullif($4, ''))", queue, group, d, reason)
}

// HoldGroup implements driver.GroupHolder.
func (q *Queue) HoldGroup(ctx context.Context, group string, d time.Duration, reason string) error {
	return q.store.HoldGroup(ctx, q.name, group, d, reason)
}

// GroupPolicies implements driver.GroupStore.
func (s *Store) GroupPolicies(ctx context.Context, queue, after string, most int) ([]admin.GroupPolicy, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := list(ctx, s.pool, func(row pgx.CollectableRow) (p admin.GroupPolicy, err error) {
		var limits limitRow
		err = row.Scan(append([]any{&p.Group}, limits.columns()...)...)
		l := limits.limits()
		p.MaxRunning, p.Rate, p.Weight, p.Hold = l.MaxRunning, l.Rate, l.Weight, l.Hold
		return p, err
	}, "select group_key, "+limitColumns+" from "+s.table("group_policies")+"($1, $2, $3)", queue, after, most)
	return all, s.queueError(ctx, queue, err)
}

// rateArgs are rate, per and burst as set_queue and set_group take them: null leaves a queue's as it is, 0 lifts it.
func rateArgs(r *penstock.Rate) []any {
	if r == nil {
		return []any{nil, nil, 0}
	}
	if r.Jobs == 0 {
		return []any{0, nil, 0}
	}
	return []any{r.Jobs, r.Per, r.Burst}
}

// rateColumns are a rate in the database: null where there is none.
type rateColumns struct{ jobs, perMicros, burst zeronull.Int8 }

func (r rateColumns) rate() penstock.Rate {
	return penstock.Rate{Jobs: int(r.jobs), Per: time.Duration(r.perMicros) * time.Microsecond, Burst: int(r.burst)}
}

// limitColumns are the columns of a limitRow.
const limitColumns = "coalesce(max_running, 0), rate, (extract(epoch from per) * 1000000)::bigint, burst, coalesce(weight, 0), coalesce(tokens, 0), held_until, coalesce(reason, '')"

type limitRow struct {
	of   admin.GroupLimits
	rate rateColumns
}

func (l *limitRow) columns() []any {
	return []any{&l.of.MaxRunning, &l.rate.jobs, &l.rate.perMicros, &l.rate.burst, &l.of.Weight, &l.of.Tokens, (*zeronull.Timestamptz)(&l.of.Until), &l.of.Reason}
}

func (l *limitRow) limits() admin.GroupLimits {
	l.of.Rate = l.rate.rate()
	return l.of
}
