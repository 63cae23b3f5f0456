package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
			err = s.store.once(ctx, func(t *tx) error { return s.settleAll(ctx, t, parts) })
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
	var there, mine, happened bool
	b := &batch{}
	b.one(&there, s.sql("fence", nil), &mine)
	b.add(s.sql("progress", words{"settled": givenUp}))
	b.read(func(rows *sql.Rows) error { return rows.Scan(&happened) },
		s.sql("select settled <> {given_up} from {schema}.progress where subscription_id = {sub} and epoch = {epoch} and attempt = {attempt}", words{"given_up": givenUp}))
	err := s.store.send(ctx, b)
	switch {
	case err != nil:
		return err
	case !there:
		return s.gone(ctx, s.store)
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
		if p.inOrder {
			if s.parkedKeys[p.msg.Key]--; s.parkedKeys[p.msg.Key] == 0 {
				delete(s.parkedKeys, p.msg.Key)
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
	b := &batch{}
	var there, mine bool
	b.one(&there, s.sql("fence", nil), &mine)
	s.queueDone(b, parts, len(parts))
	err := s.store.send(ctx, b)
	if err == nil && !mine {
		return s.gone(ctx, s.store)
	}
	return err
}

// queueDone notes or deletes what was delivered, and that n are settled.
func (s *source) queueDone(b *batch, delivered []*part, n int) {
	if len(delivered) > 0 {
		seqs := make([]int64, len(delivered))
		for i, p := range delivered {
			seqs[i] = p.msg.Seq
		}
		w := words{"seqs": list(seqs), "these": these(seqs)}
		b.add(s.sql("mark", w))
		b.add(s.sql("delete", w))
	}
	b.add(s.sql("progress", words{"settled": n}))
}

// entry is a row of the entries.
type entry struct {
	seq             int64
	ts              time.Time
	state           int
	key             string
	parkedKey, hold []byte // nil: none
	head            bool
	due, since      time.Time
	attempts        int
	failures        []byte
	err             string
	diedAt          time.Time
}

const (
	parked = 1
	dead   = 2
)

// settleAll settles what has any verdict: it reads what is known of the messages and writes what is to be.
func (s *source) settleAll(ctx context.Context, t *tx, parts []*part) error {
	var there, mine bool
	w := writes{keys: map[string][]int64{}}
	before := map[int64]*entry{}
	seqs := make([]int64, len(parts))
	for i, p := range parts {
		seqs[i] = p.msg.Seq
	}
	b := &batch{}
	b.one(&there, s.sql("fence", nil), &mine)
	b.read(func(rows *sql.Rows) error { return rows.Scan(&w.now) }, "select utc_timestamp(6)")
	b.read(func(rows *sql.Rows) error {
		e := &entry{}
		var since sql.NullTime
		err := rows.Scan(&e.seq, &e.state, &e.parkedKey, &e.hold, &e.attempts, &since, &e.failures)
		e.since = since.Time
		before[e.seq] = e
		return err
	}, s.sql("read_entries", words{"seqs": list(seqs)}))
	err := t.run(ctx, b)
	if err == nil && !mine {
		return s.gone(ctx, t)
	}
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := w.judge(p, before[p.msg.Seq]); err != nil {
			return err
		}
	}
	return s.write(ctx, t, &w)
}

// writes is what a Settle does to the entries.
type writes struct {
	now       time.Time
	gone      []int64 // entries to take away, also where another takes their place
	entries   []*entry
	delivered []*part
	keys      map[string][]int64 // whose first may be another, with what of them was parked now
	released  []string           // keys whose dead letter was delivered
	settled   int
}

// look has the first of a parked key found anew, of which these were parked now.
func (w *writes) look(key string, fresh ...int64) { w.keys[key] = append(w.keys[key], fresh...) }

// judge carries out the verdict on a message, of which something may be known before.
func (w *writes) judge(p *part, before *entry) error {
	h := pg.History{}
	e := &entry{seq: p.msg.Seq, ts: p.ts, key: p.msg.Key}
	if before != nil {
		w.gone = append(w.gone, e.seq)
		e.hold, h.Attempt, h.Since = before.hold, before.attempts, before.since
		if err := h.Parse(before.failures); err != nil {
			return err
		}
		if before.parkedKey != nil {
			w.look(string(before.parkedKey))
		}
	}
	inOrder := p.msg.Key != "" && (p.from != fromPark || p.inOrder)
	attempts := h.Attempt + len(p.Failures)
	h = h.And(p.Failures)
	switch p.Outcome {
	case penstock.Delivered:
		w.settled++
		w.delivered = append(w.delivered, p)
		if e.hold != nil {
			w.released = append(w.released, string(e.hold))
		}
		return nil
	case penstock.Parked:
		e.state, e.due = parked, w.now.Add(max(p.RetryIn, 0))
		if inOrder {
			e.parkedKey = []byte(e.key)
			w.look(e.key, e.seq)
		} else {
			e.head = true
		}
	case penstock.Dead:
		w.settled++
		e.state, e.diedAt = dead, w.now
		if len(p.Failures) == 0 {
			attempts++ // it had one, even if nobody noted a failure
		}
		if p.Hold && inOrder {
			e.hold = []byte(e.key)
			w.look(e.key)
		}
	}
	e.attempts = attempts
	if attempts > 0 && !h.Since.IsZero() {
		e.since, e.failures, e.err = h.Since, []byte(h.JSON()), h.LastError()
	}
	w.entries = append(w.entries, e)
	return nil
}

// write sends what is to be written, with the commit: usually in one round trip.
func (s *source) write(ctx context.Context, t *tx, w *writes) error {
	b := &batch{}
	add := func(statement string, args ...any) error {
		b.add(statement, args...)
		return t.empty(ctx, b)
	}
	if len(w.gone) > 0 {
		if err := add(s.sql("delete {schema}.entries from {these} straight_join {schema}.entries force index (primary) on subscription_id = {sub} and entries.seq = d.seq", words{"these": these(w.gone)})); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(w.entries, 100) {
		var args []any
		for _, e := range some {
			args = append(args, s.id, e.seq, e.ts.UTC(), e.state, []byte(e.key), e.parkedKey, e.hold, e.head, timeOrNull(e.due), e.attempts, timeOrNull(e.since), e.failures, []byte(e.err), timeOrNull(e.diedAt))
		}
		const one = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
		if err := add(s.sql("insert into {schema}.entries (subscription_id, seq, ts, state, `key`, parked_key, hold, head, due, attempts, since, failures, error, died_at) values ", nil)+
			strings.Repeat(one+", ", len(some)-1)+one, args...); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.keys)) {
		if err := add(s.sql("heads", words{"fresh": list(w.keys[key])}), []byte(key), []byte(key)); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(w.released, 100) {
		keys, args := texts(some)
		if err := add(s.sql("release", words{"keys": keys}), args...); err != nil {
			return err
		}
	}
	s.queueDone(b, w.delivered, w.settled)
	return t.finish(ctx, b)
}
