package adopt

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// leaseLock is the first half of the advisory lock under which a lease changes hands;
// the subscription's id is the second. schema/functions/adopt.sql has the same number.
const leaseLock = 0x70656e61 // "pena"

// state is a row of the log.
type state struct {
	epoch     int64
	workers   bool
	holder    string
	until     time.Time
	held      bool
	since     time.Time
	settled   int64
	orderedBy []string
	low       place
	sink      sink
}

func (t *Table) state(ctx context.Context, q querier, id int64) (s state, err error) {
	err = q.QueryRow(ctx, t.own("head"), id).Scan(&s.epoch, &s.workers, &s.holder, &s.until, &s.since, &s.settled, &s.orderedBy, (*[]string)(&s.low), &s.held, &s.sink.down, &s.sink.why)
	return s, err
}

// orderedBy names the columns of a place's values: a place in another order, or in
// another table, means nothing.
func (m *mapping) orderedBy() []string {
	names := []string{m.Source}
	for _, c := range m.order {
		names = append(names, c.Name, c.Type)
	}
	return names
}

// lease is this holder's. Several workers share an epoch, and each has a lease that keeps out only
// a single reader.
type lease struct {
	id      int64 // of the subscription
	epoch   int64
	workers bool
	holder  string
	length  time.Duration
	since   time.Time
	n       int64 // of the row of the log that it began with
	settled int64
	low     place // where to begin
	sink    sink
}

// acquire creates the subscription if needed and takes its lease: the next epoch, with
// the low-water mark of the one before.
func (t *Table) acquire(ctx context.Context, req driver.Subscribe, m *mapping) (*lease, error) {
	l := &lease{holder: req.Holder, length: req.Lease, workers: !m.config.Ordered()}
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) (err error) {
		if l.id, err = t.register(ctx, tx, m); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "select "+t.ownName("_adopt_lock")+"($1)", l.id); err != nil {
			return err
		}
		before, err := t.state(ctx, tx, l.id)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		together := l.workers && before.workers
		if before.held && !together {
			return &penstock.HeldError{Subscription: t.name, Holder: before.holder, Until: before.until}
		}
		if slices.Equal(before.orderedBy, m.orderedBy()) {
			l.low = before.low
		}
		if l.epoch = before.epoch; !together {
			l.epoch++
		}
		if !together { // the first worker continues the count of those before
			if l.settled = before.settled; before.workers {
				if l.settled, err = t.settledByWorkers(ctx, tx, l.id, before.epoch); err != nil {
					return err
				}
			}
		}
		return tx.QueryRow(ctx, t.own("log"), l.args(m, l.length)...).Scan(&l.since, &l.n)
	})
	return l, t.explain(err)
}

// settledByWorkers adds up the rows that the workers of an epoch have settled.
func (t *Table) settledByWorkers(ctx context.Context, q querier, id, epoch int64) (n int64, err error) {
	err = q.QueryRow(ctx, `select coalesce(sum(settled), 0)::bigint from (
		select distinct on (holder, since) settled from `+t.ownName("_adopt_log")+` where subscription = $1 and epoch = $2 order by holder, since, n desc) s`, id, epoch).Scan(&n)
	return n, err
}

// args are the parameters of log.sql; a length of 0 gives the lease back.
func (l *lease) args(m *mapping, length time.Duration) []any {
	holder := l.holder
	if length == 0 && !l.workers {
		holder = ""
	}
	var since *time.Time
	if !l.since.IsZero() {
		since = &l.since
	}
	return []any{l.id, l.epoch, holder, length.Microseconds(), since, l.settled, m.orderedBy(), []string(l.low), l.workers, l.sink.down, l.sink.why}
}

// fence is the first statement of whatever only the holder of the lease may do. Its second
// column is the transaction's id.
func (l *lease) fence(t *Table, b *pgx.Batch) *pgx.QueuedQuery {
	return b.Queue("select "+t.ownName("_adopt_fence")+"($1, $2), pg_current_xact_id()", l.id, l.epoch)
}
