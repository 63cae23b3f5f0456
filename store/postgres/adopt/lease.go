package adopt

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pgerror"
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
	low       place // where to begin
	sink      sink
}

// state is that of no holder if there is none yet.
func (t *Table) state(ctx context.Context, q querier, id int64) (s state, err error) {
	err = q.QueryRow(ctx, t.own("head"), id).Scan(&s.epoch, &s.workers, &s.holder, &s.until, &s.since, &s.settled, &s.orderedBy, (*[]string)(&s.low), &s.held, (*zeronull.Timestamptz)(&s.sink.down), &s.sink.why)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
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
	state
	id     int64 // of the subscription
	n      int64 // of the row of the log that it began with
	length time.Duration
}

// acquire creates the subscription if needed and takes its lease: the next epoch, with
// the low-water mark of the one before.
func (t *Table) acquire(ctx context.Context, req driver.Subscribe, m *mapping) (*lease, error) {
	l := &lease{state: state{holder: req.Holder, workers: !m.config.Ordered()}, length: req.Lease}
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) (err error) {
		if l.id, err = t.register(ctx, tx, m); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "select "+t.ownName("_adopt_lock")+"($1)", l.id); err != nil {
			return err
		}
		before, err := t.state(ctx, tx, l.id)
		if err != nil {
			return err
		}
		together := l.workers && before.workers
		if before.held && !together {
			return &penstock.HeldError{Subscription: t.name, Holder: before.holder, Until: before.until}
		}
		if slices.Equal(before.orderedBy, m.orderedBy()) {
			l.low = before.low
		}
		if l.epoch = before.epoch; !together { // the first worker continues the count of those before
			l.epoch, l.settled = before.epoch+1, before.settled
		}
		return tx.QueryRow(ctx, t.own("log"), l.args(m, l.length)...).Scan(&l.since, &l.n)
	})
	return l, t.explain(err)
}

// args are the parameters of log.sql; a length of 0 gives the lease back.
func (l *lease) args(m *mapping, length time.Duration) []any {
	holder := l.holder
	if length == 0 && !l.workers {
		holder = ""
	}
	return []any{l.id, l.epoch, holder, length.Microseconds(), zeronull.Timestamptz(l.since), l.settled, m.orderedBy(), []string(l.low), l.workers, zeronull.Timestamptz(l.sink.down), l.sink.why}
}

// fence is the first statement of whatever only the holder of the lease may do. Its second
// column is the transaction's id.
func (l *lease) fence(t *Table, b *pgx.Batch) *pgx.QueuedQuery {
	return b.Queue("select "+t.ownName("_adopt_fence")+"($1, $2), pg_current_xact_id()", l.id, l.epoch)
}

// Renew implements driver.Source: it writes the log, which has the lease. It does not wait for a
// settling transaction, which may wait for another session's row lock.
func (s *Source) Renew(ctx context.Context) error {
	if s.isClosed() {
		return penstock.ErrClosed
	}
	return s.log(ctx, s.lease.length)
}

// log writes the lease, if it is still this source's, and the low-water mark. That is where a reader that comes after this one has to
// begin: a margin behind the head, and before all that has no verdict.
func (s *Source) log(ctx context.Context, length time.Duration) error {
	l := *s.lease
	s.mu.Lock()
	now := time.Now()
	own := s.track.writes(now)
	l.low, l.settled, l.sink = s.decided(s.track.low(now)).place, s.settled, s.sink
	s.mu.Unlock()
	write := func() error {
		var b pgx.Batch
		l.fence(s.t, &b).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &own.xid) })
		b.Queue(s.t.own("log"), l.args(s.m, length)...)
		b.Queue(s.t.own("forget_log"), l.id)
		return s.t.pool.SendBatch(ctx, &b).Close()
	}
	err := write()
	if pgerror.State(err) == pgerror.NoSuchCharacter { // the sink's error is its own
		l.sink.why = pgerror.ASCII(l.sink.why)
		err = write()
	}
	if err == nil {
		s.mu.Lock()
		s.track.wrote(own)
		s.mu.Unlock()
	}
	return s.t.explain(err)
}

// sink is how the sink is, as the relay says.
type sink struct {
	down time.Time // zero: it takes messages
	why  string
}

// ReportSink implements driver.SinkReporter. It goes into the log, with each row from now on; should a
// Renew that had begun before write the last one, until the next.
func (s *Source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if s.isClosed() {
		return penstock.ErrClosed
	}
	s.mu.Lock()
	s.sink = sink{down, why}
	s.mu.Unlock()
	return s.log(ctx, s.lease.length)
}

// All numbers of a subscription's messages differ, because an operator names a dead letter by its number. A later reader returns higher
// numbers, because parked keys are in their order. A number is made of the epoch, of a value of the log's sequence, which no other reader
// has drawn, and of a count. A single reader counts on, alone in its epoch. Workers share theirs, so they draw another value for every block.
const (
	seqEpoch = 40 // bits below the epoch
	seqBlock = 12 // bits of a block
)

// block is the number before the first one of the block of a value that was drawn.
func (l *lease) block(drawn int64) int64 { return l.epoch<<seqEpoch + drawn<<seqBlock }

func (s *Source) nextSeq(ctx context.Context) (int64, error) {
	next := s.seq + 1
	if s.lease.workers && next%(1<<seqBlock) == 0 {
		var drawn int64
		if err := s.t.pool.QueryRow(ctx, "select nextval($1)", s.t.ownName("_adopt_n")).Scan(&drawn); err != nil {
			return 0, err
		}
		next = s.lease.block(drawn) + 1
	}
	s.seq = next
	return next, nil
}
