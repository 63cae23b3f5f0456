package portable

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/retry"
)

// part is a message of a batch with its verdict.
type part struct {
	batch *openBatch
	no    uint64
	msg   *penstock.Message
	*flight
	penstock.Verdict
}

// Settle implements penstock.Source. Each attempt has a number and leaves a row with it, in the transaction that settles:
// after an error the row tells whether that has happened, and keeps it from happening later.
func (s *source) Settle(ctx context.Context, settled ...penstock.Settled) error {
	if err := s.usable(ctx); err != nil || s.id == 0 {
		return err
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	err := s.store.retries.Do(ctx, func() error {
		if err := s.resolve(ctx); err != nil {
			return err
		}
		parts, err := s.parts(settled)
		if err != nil || len(parts) == 0 {
			return err
		}
		s.unsure = parts
		if plain(parts) {
			err = s.settlePlain(ctx, parts)
		} else {
			err = pgx.BeginFunc(ctx, s.store.pool, func(tx pgx.Tx) error { return s.settleAll(ctx, tx, parts) })
		}
		switch {
		case err == nil:
			s.confirm()
		case retry.Of(err) != retry.None:
			s.unsure = nil // nothing was changed
		}
		return err
	})
	return s.store.explain(err)
}

// resolve finds out what became of an attempt that ended with an error. The server may be about to do it still: so an
// attempt that has not happened is given up, by a row that keeps its statements from doing anything, and the next has
// another number. The lock waits for one that is under way; what comes after it sees how that has ended.
func (s *source) resolve(ctx context.Context) error {
	if s.unsure == nil {
		return nil
	}
	s.store.retries.Looked()
	b := &pgx.Batch{}
	var mine, happened bool
	b.Queue(s.fence(), s.id, s.epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&mine) })
	b.Queue(s.sql("progress"), s.id, s.epoch, s.attempt, givenUp)
	b.Queue(s.store.sql("select settled <> $4 from {schema}.progress where subscription_id = $1 and epoch = $2 and attempt = $3", ""),
		s.id, s.epoch, s.attempt, givenUp).QueryRow(func(r pgx.Row) error { return r.Scan(&happened) })
	err := s.store.pool.SendBatch(ctx, b).Close()
	switch {
	case isNoRows(err):
		return s.gone(ctx)
	case err != nil:
		return err
	case happened:
		s.confirm()
		return nil
	}
	s.unsure = nil
	s.attempt++
	return nil
}

// givenUp, in the place of how many were settled, says that the attempt will not happen.
const givenUp = -1

// confirm notes that the last attempt has happened.
func (s *source) confirm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.unsure {
		delete(s.inFlight, p.msg.Seq)
		if p.line {
			if s.lines[p.msg.Key]--; s.lines[p.msg.Key] == 0 {
				delete(s.lines, p.msg.Key)
			}
		}
		if p.batch.left--; p.batch.left == 0 {
			delete(s.open, p.no)
		}
	}
	s.unsure = nil
	s.attempt++
}

// parts are the messages that have a verdict and had none before.
func (s *source) parts(settled []penstock.Settled) (parts []*part, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[int64]bool{}
	for _, st := range settled {
		no := st.Batch.Number
		b := s.open[no]
		switch {
		case no > s.number:
			return nil, fmt.Errorf("batch %d of subscription %q was not returned by Fetch", no, s.req.Subscription)
		case b == nil:
			continue // it is settled: asked again, after an answer that did not arrive
		case st.Verdicts != nil && len(st.Verdicts) != len(b.msgs):
			return nil, fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", no, len(b.msgs), len(st.Verdicts))
		}
		for i := range b.msgs {
			p := &part{batch: b, no: no, msg: &b.msgs[i], flight: s.inFlight[b.msgs[i].Seq]}
			if st.Verdicts != nil {
				p.Verdict = st.Verdicts[i]
			}
			if p.flight == nil || p.flight.batch != no || p.Outcome == penstock.Undecided || seen[p.msg.Seq] {
				continue
			}
			seen[p.msg.Seq] = true
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// plain: all are new and were delivered.
func plain(parts []*part) bool {
	return !slices.ContainsFunc(parts, func(p *part) bool { return p.from != fromLog || p.Outcome != penstock.Delivered })
}

// settlePlain settles what is new and was delivered, in one round trip.
func (s *source) settlePlain(ctx context.Context, parts []*part) error {
	b := &pgx.Batch{}
	var mine bool
	b.Queue(s.fence(), s.id, s.epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&mine) })
	done := s.queueDone(b, parts, len(parts))
	err := s.store.pool.SendBatch(ctx, b).Close()
	if isNoRows(err) || err == nil && !mine {
		return s.gone(ctx)
	}
	if missing := int64(len(parts)) - *done; err == nil && missing > 0 { // see existing.sql
		_, err = s.store.pool.Exec(ctx, s.store.sql("update {schema}.progress set settled = settled - $4 where subscription_id = $1 and epoch = $2 and attempt = $3", ""),
			s.id, s.epoch, s.attempt, missing)
	}
	return err
}

// queueDone notes or deletes what was delivered, and that n are settled. Once it is sent, done is how many messages were there.
func (s *source) queueDone(b *pgx.Batch, delivered []*part, n int) (done *int64) {
	done = new(int64)
	if len(delivered) > 0 {
		buckets, times, seqs := keysOf(delivered)
		for _, statement := range []string{"mark", "delete"} {
			b.Queue(s.sql(statement), s.id, s.epoch, s.attempt, buckets, times, seqs).Exec(func(c pgconn.CommandTag) error {
				*done += c.RowsAffected()
				return nil
			})
		}
	}
	b.Queue(s.sql("progress"), s.id, s.epoch, s.attempt, n)
	return done
}

// keysOf are the primary keys of messages.
func keysOf(parts []*part) (buckets []int16, times []time.Time, seqs []int64) {
	for _, p := range parts {
		buckets, times, seqs = append(buckets, p.bucket), append(times, p.ts), append(seqs, p.msg.Seq)
	}
	return buckets, times, seqs
}

// entry is a row of the entries.
type entry struct {
	Seq      int64           `json:"seq"`
	Bucket   int16           `json:"bucket"`
	TS       time.Time       `json:"ts"`
	State    int             `json:"state"`
	Key      string          `json:"key"`
	Line     *string         `json:"line"`
	Hold     *string         `json:"hold"`
	Head     bool            `json:"head"`
	Due      *time.Time      `json:"due"`
	Attempts int             `json:"attempts"`
	Since    *time.Time      `json:"since"`
	Failures json.RawMessage `json:"failures"`
	DiedAt   *time.Time      `json:"died_at"`
}

const (
	parked = 1
	dead   = 2
)

// settleAll settles what has any verdict: it reads what is known of the messages and writes what is to be.
func (s *source) settleAll(ctx context.Context, tx pgx.Tx, parts []*part) error {
	var mine bool
	var now time.Time
	before, there := map[int64]*entry{}, map[int64]bool{}
	buckets, times, seqs := keysOf(parts)
	b := &pgx.Batch{}
	b.Queue(s.fence(), s.id, s.epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&mine) })
	b.Queue("select clock_timestamp()").QueryRow(func(r pgx.Row) error { return r.Scan(&now) })
	b.Queue(s.store.sql("read_entries", ""), s.id, seqs).Query(func(rows pgx.Rows) error {
		var e entry
		var failures []byte
		_, err := pgx.ForEachRow(rows, []any{&e.Seq, &e.State, &e.Line, &e.Hold, &e.Attempts, &e.Since, &failures}, func() error {
			known := e
			known.Failures = slices.Clone(failures)
			before[e.Seq] = &known
			return nil
		})
		return err
	})
	b.Queue(s.store.sql("existing", s.box.name), buckets, times, seqs).Query(func(rows pgx.Rows) error {
		var seq int64
		_, err := pgx.ForEachRow(rows, []any{&seq}, func() error { there[seq] = true; return nil })
		return err
	})
	err := tx.SendBatch(ctx, b).Close()
	if isNoRows(err) || err == nil && !mine {
		return s.gone(ctx)
	}
	if err != nil {
		return err
	}
	w := writes{now: now}
	for _, p := range parts {
		if !there[p.msg.Seq] {
			continue // parked, it would keep its key waiting for ever
		}
		if err := w.judge(p, before[p.msg.Seq]); err != nil {
			return err
		}
	}
	return s.write(ctx, tx, &w)
}

// writes is what a Settle does to the entries.
type writes struct {
	now       time.Time
	gone      []int64 // entries to take away, also where another takes their place
	entries   []*entry
	delivered []*part
	lines     []string // whose first may be another
	fresh     []int64  // of what was parked now
	released  []string // keys whose dead letter was delivered
	settled   int
}

// judge carries out the verdict on a message, of which something may be known before.
func (w *writes) judge(p *part, before *entry) error {
	h := pg.History{}
	e := &entry{Seq: p.msg.Seq, Bucket: p.bucket, TS: p.ts, Key: p.msg.Key}
	if before != nil {
		w.gone = append(w.gone, e.Seq)
		e.Hold, h.Attempt = before.Hold, before.Attempts
		if before.Since != nil {
			h.Since = *before.Since
		}
		if err := h.Parse(before.Failures); err != nil {
			return err
		}
		if before.Line != nil {
			w.lines = append(w.lines, *before.Line)
		}
	}
	inOrder := p.msg.Key != "" && (p.from != fromPark || p.line)
	attempts := h.Attempt + len(p.Failures)
	h = h.And(p.Failures)
	switch p.Outcome {
	case penstock.Delivered:
		w.settled++
		w.delivered = append(w.delivered, p)
		if e.Hold != nil {
			w.released = append(w.released, *e.Hold)
		}
		return nil
	case penstock.Parked:
		e.State = parked
		due := w.now.Add(max(p.RetryIn, 0))
		if e.Due = &due; inOrder {
			e.Line = &e.Key
			w.lines, w.fresh = append(w.lines, e.Key), append(w.fresh, e.Seq)
		} else {
			e.Head = true
		}
	case penstock.Dead:
		w.settled++
		e.State, e.DiedAt = dead, &w.now
		if len(p.Failures) == 0 {
			attempts++ // it had one, even if nobody noted a failure
		}
		if p.Hold && inOrder {
			e.Hold = &e.Key
			w.lines = append(w.lines, e.Key)
		}
	}
	e.Attempts = attempts
	if attempts > 0 && !h.Since.IsZero() {
		e.Since, e.Failures = &h.Since, json.RawMessage(h.JSON())
	}
	w.entries = append(w.entries, e)
	return nil
}

func (s *source) write(ctx context.Context, tx pgx.Tx, w *writes) error {
	b := &pgx.Batch{}
	if len(w.gone) > 0 {
		b.Queue(s.store.sql("delete from {schema}.entries where subscription_id = $1 and seq = any ($2)", ""), s.id, w.gone)
	}
	if len(w.entries) > 0 {
		b.Queue(s.store.sql("write_entries", ""), s.id, w.entries)
	}
	if len(w.lines) > 0 {
		slices.Sort(w.lines)
		b.Queue(s.store.sql("heads", ""), s.id, slices.Compact(w.lines), orEmpty(w.fresh))
	}
	if len(w.released) > 0 {
		b.Queue(s.store.sql("release", ""), s.id, w.released)
	}
	s.queueDone(b, w.delivered, w.settled)
	return tx.SendBatch(ctx, b).Close()
}

// orEmpty: nil would be NULL.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
