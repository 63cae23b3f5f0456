package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/seqset"
)

// openBatch is a batch that Fetch returned and that is not behind the cursor yet.
type openBatch struct {
	number uint64
	from   origin
	end    int64 // the position, in the log or the replay, once this batch and all before it are settled
	replay int64
	parked []place // of each message, if they are from the park
	count  int
	first  int64   // seq of the first message; the rest follow without gaps,
	seqs   []int64 // or this lists every one

	settled []bool // of each message; nil until a part of them is
	left    int    // those that are not
}

// failedVerdict is that of a message that was not delivered.
type failedVerdict struct {
	index int
	driver.Verdict
}

func (b *openBatch) seq(i int) int64 {
	if b.seqs != nil {
		return b.seqs[i]
	}
	return b.first + int64(i)
}

// part is what one Settle says of a batch.
type part struct {
	*openBatch
	which  []int // messages; nil if it is all of them at once
	failed []failedVerdict
}

func (p *part) len() int {
	if p.which == nil {
		return p.count
	}
	return len(p.which)
}

func (p *part) indexes() []int {
	if p.which != nil {
		return p.which
	}
	all := make([]int, p.count)
	for i := range all {
		all[i] = i
	}
	return all
}

// set is the part's seqs.
func (p *part) set() seqset.Set {
	if p.which == nil && p.seqs == nil {
		return seqset.Set{{p.first, p.first + int64(p.count) - 1}}
	}
	seqs := make([]int64, 0, p.len())
	for _, i := range p.indexes() {
		seqs = append(seqs, p.seq(i))
	}
	return seqset.Of(seqs)
}

// attempt is the last call of Settle that wrote something, and what is known once it
// is settled.
type attempt struct {
	settles int64 // as it writes it
	parts   []*part
	ahead   seqset.Set
	known   bool
}

// Settle implements driver.Source.
func (s *source) Settle(ctx context.Context, _ uint64, settled ...driver.Settled) error {
	return s.settle(ctx, nil, settled...)
}

// txWork is something to do in a transaction.
type txWork func(ctx context.Context, tx *sql.Tx) error

// settle is Settle with something else to do, if it is not nil, in the transaction in
// which the cursor passes: not a second time for a batch that was settled by a call
// whose answer was an error.
func (s *source) settle(ctx context.Context, also txWork, settled ...driver.Settled) error {
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	err := s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error { return s.apply(ctx, tx, settled, time.Now(), also) })
	if err != nil {
		return err
	}
	s.learn(s.last)
	return nil
}

// learn notes what an attempt has settled.
func (s *source) learn(a *attempt) {
	if a == nil || a.known {
		return
	}
	a.known = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = a.ahead
	for _, p := range a.parts {
		p.left -= p.len()
		if p.which != nil {
			if p.settled == nil {
				p.settled = make([]bool, p.count)
			}
			for _, i := range p.which {
				p.settled[i] = true
			}
		}
		s.returned = append(s.returned, p.returns()...)
	}
	for len(s.open) > 0 && s.open[0].left == 0 {
		s.open = s.open[1:]
	}
}

// returns lists the keys of a settled part of which nothing is in flight any more.
func (p *part) returns() (keys []int64) {
	if p.from != fromPark {
		return nil
	}
	open := map[int64]bool{}
	for i, at := range p.parked {
		if p.left > 0 && !p.settled[i] {
			open[at.key] = true
		}
	}
	for _, i := range p.indexes() {
		if key := p.parked[i].key; !open[key] && (len(keys) == 0 || keys[len(keys)-1] != key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// check finds what is settled now, with what was not delivered.
func (s *source) check(settled []driver.Settled) ([]*part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []*part
	for _, st := range settled {
		number := st.Batch.Number
		if number > s.number {
			return nil, fmt.Errorf("batch %d of subscription %q was not returned by Fetch: settle what it returned", number, s.req.Subscription)
		}
		b := s.find(number)
		if b == nil || b.left == 0 {
			continue // asked again, after an answer that did not arrive; or it had no messages
		}
		if st.Verdicts != nil && len(st.Verdicts) != b.count {
			return nil, fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", number, b.count, len(st.Verdicts))
		}
		if p := b.part(st.Verdicts); p.len() > 0 {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// part is what verdicts say of messages that have none.
func (b *openBatch) part(verdicts []driver.Verdict) *part {
	p := &part{openBatch: b}
	whole := b.settled == nil && !slices.ContainsFunc(verdicts, func(v driver.Verdict) bool { return v.Outcome == driver.Undecided })
	if !whole {
		p.which = []int{}
	}
	for i, v := range verdicts {
		if v.Outcome == driver.Undecided || b.settled != nil && b.settled[i] {
			continue
		}
		if !whole {
			p.which = append(p.which, i)
		}
		if v.Outcome != driver.Delivered {
			v.Failures = slices.Clone(v.Failures)
			p.failed = append(p.failed, failedVerdict{i, v})
		}
	}
	if verdicts == nil && !whole {
		for i, settled := range b.settled {
			if !settled {
				p.which = append(p.which, i)
			}
		}
	}
	return p
}

// find returns the open batch of that number; they are numbered in a row.
func (s *source) find(number uint64) *openBatch {
	if len(s.open) == 0 || number < s.open[0].number {
		return nil
	}
	return s.open[number-s.open[0].number]
}

// progress is how far the cursor of some batches can move once the parts are settled:
// over what is settled already, up to the first message that is not. ok is false if
// there is no such batch.
func (s *source) progress(parts []*part, of func(*openBatch) bool) (position int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.open {
		if !of(b) {
			continue
		}
		i, found := slices.BinarySearchFunc(parts, b.number, func(p *part, number uint64) int { return cmp.Compare(p.number, number) })
		if b.left == 0 || found && parts[i].len() == b.left {
			position, ok = b.end, true
			continue
		}
		var which []int
		if found {
			which = parts[i].which
		}
		first := 0
		for ; b.settled != nil && b.settled[first] || len(which) > 0 && which[0] == first; first++ {
			if len(which) > 0 && which[0] == first {
				which = which[1:]
			}
		}
		return b.seq(first) - 1, true
	}
	return position, ok
}

// state is what a Settle changes of the subscription's row.
type state struct {
	position, settles, rateAt, epoch int64
	rate                             float64
}

// apply carries out the verdicts and moves the cursor. Without any it only checks that
// the lease is still ours. What it settles is known to be settled when the transaction
// has committed; s.last says what that is.
func (s *source) apply(ctx context.Context, tx *sql.Tx, settled []driver.Settled, at time.Time, also txWork) error {
	var now state
	err := tx.QueryRowContext(ctx, `select position, settles, rate, rate_at, epoch from penstock_subscriptions where id = ?`, s.subID).
		Scan(&now.position, &now.settles, &now.rate, &now.rateAt, &now.epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.gone(ctx, tx)
	case err != nil:
		return err
	case now.epoch != s.epoch:
		return s.end(s.fenced())
	}
	if s.last != nil && s.last.settles != now.settles {
		s.last = nil
	}
	s.learn(s.last) // it took effect, but its answer may have been an error
	parts, err := s.check(settled)
	if err != nil || len(parts) == 0 {
		return err
	}
	if also != nil {
		if err := also(ctx, tx); err != nil {
			return err
		}
	}
	count := 0
	next := &attempt{settles: now.settles + 1, parts: parts, ahead: s.ahead}
	for _, p := range parts {
		if err := s.settlePart(ctx, tx, p, at); err != nil {
			return fmt.Errorf("batch %d: %w", p.number, err)
		}
		count += p.len()
		for _, r := range p.failed {
			if r.Outcome == driver.Parked {
				count--
			}
		}
	}
	if err := s.settleReplays(ctx, tx, parts); err != nil {
		return err
	}
	position := now.position
	if to, ok := s.progress(parts, func(b *openBatch) bool { return b.from == fromLog }); ok {
		position = max(position, to)
		for _, p := range parts {
			if p.from == fromLog && (p.which != nil || p.end > position) {
				next.ahead = next.ahead.Union(p.set())
			}
		}
		if next.ahead = next.ahead.After(position); len(next.ahead) > 0 && next.ahead[0][0] == position+1 {
			position = next.ahead[0][1] // they were settled by a reader before
			next.ahead = next.ahead[1:]
		}
	}
	s.last = next
	_, err = tx.ExecContext(ctx, settleSQL, position, ranges(next.ahead), next.settles, count,
		decayed(now.rate, now.rateAt, at)+float64(count)/window.Seconds(), at.UnixMicro(), s.subID)
	return err
}

// settleReplays moves on the replays that parts are of.
func (s *source) settleReplays(ctx context.Context, tx *sql.Tx, parts []*part) error {
	settled := map[int64]seqset.Set{}
	for _, p := range parts {
		if p.from == fromReplay {
			settled[p.replay] = settled[p.replay].Union(p.set())
		}
	}
	for id, set := range settled {
		var position int64
		var text string
		err := tx.QueryRowContext(ctx, `select position, ahead from penstock_replays where id = ?`, id).Scan(&position, &text)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		ahead, err := readRanges(text, err)
		if err != nil {
			return err
		}
		if to, ok := s.progress(parts, func(b *openBatch) bool { return b.replay == id }); ok {
			position = max(position, to)
		}
		if _, err := tx.ExecContext(ctx, `update penstock_replays set position = ?, ahead = ? where id = ?`, position, ranges(ahead.Union(set).After(position)), id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `delete from penstock_replays where id = ? and position >= last`, id); err != nil {
			return err
		}
	}
	return nil
}

// ranges is a set as a column, and readRanges the way back, if there was no error.
func ranges(s seqset.Set) string {
	if len(s) == 0 {
		return "[]"
	}
	return array(s)
}

func readRanges(column string, err error) (s seqset.Set, _ error) {
	if err != nil || column == "[]" {
		return nil, err
	}
	return s, json.Unmarshal([]byte(column), &s)
}

// The rate is a mean that forgets: like a load average it needs two numbers and
// no history. After a minute of silence a third of it is left.
const window = time.Minute

func decayed(rate float64, since int64, now time.Time) float64 {
	silence := max(now.Sub(time.UnixMicro(since)), 0)
	return rate * math.Exp(-silence.Seconds()/window.Seconds())
}
