package sqlite

import (
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

// fetched is what Settle needs to know of a batch.
type fetched struct {
	from   origin
	end    int64 // the position, in the log or the replay, once this batch and all before it are settled
	replay int64
	parked []place // of each message, if they are from the park
	count  int
	first  int64   // seq of the first message; the rest follow without gaps,
	seqs   []int64 // or this lists every one
}

// failedVerdict is that of a message that was not delivered.
type failedVerdict struct {
	index int
	driver.Verdict
}

func (b *fetched) seq(i int) int64 {
	if b.seqs != nil {
		return b.seqs[i]
	}
	return b.first + int64(i)
}

// part is what is new of a batch.
type part struct {
	*fetched
	number uint64
	open   bool
	which  []int // messages; nil if it is all of them
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

// Settle implements driver.Source.
func (s *source) Settle(ctx context.Context, attempt uint64, news ...driver.Settled) error {
	return s.settle(ctx, nil, attempt, news...)
}

// txWork is something to do in a transaction.
type txWork func(ctx context.Context, tx *sql.Tx) error

// settle is Settle with also, if that is not nil, in the transaction in which the cursor passes. It
// does not run a second time for a call whose answer was an error.
func (s *source) settle(ctx context.Context, also txWork, attempt uint64, news ...driver.Settled) error {
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	parts, err := s.parts(news)
	if err != nil || len(parts) == 0 {
		return err
	}
	if err := s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.apply(ctx, tx, int64(attempt), parts, time.Now(), also)
	}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		if p.from == fromPark {
			for _, i := range p.indexes() {
				s.returned = append(s.returned, p.parked[i].key)
			}
		}
	}
	return nil
}

// parts sorts the news.
func (s *source) parts(news []driver.Settled) (parts []*part, err error) {
	for _, st := range news {
		b, _ := st.Batch.Source.(*fetched)
		if len(st.Batch.Messages) == 0 {
			continue
		}
		if b == nil {
			return nil, fmt.Errorf("batch %d of subscription %q was not returned by Fetch: settle what it returned", st.Batch.Number, s.req.Subscription)
		}
		if st.Verdicts != nil && len(st.Verdicts) != b.count {
			return nil, fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", st.Batch.Number, b.count, len(st.Verdicts))
		}
		p := &part{fetched: b, number: st.Batch.Number, open: st.Open}
		if slices.ContainsFunc(st.Verdicts, func(v driver.Verdict) bool { return v.Outcome == driver.Undecided }) {
			p.which = []int{}
		}
		for i, v := range st.Verdicts {
			if v.Outcome == driver.Undecided {
				continue
			}
			if p.which != nil {
				p.which = append(p.which, i)
			}
			if v.Outcome != driver.Delivered {
				v.Failures = slices.Clone(v.Failures)
				p.failed = append(p.failed, failedVerdict{i, v})
			}
		}
		if p.len() > 0 || !p.open {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// progress is how far the cursor of some batches moves, and which messages are settled ahead of it,
// once the parts are settled.
func progress(parts []*part, position int64, ahead seqset.Set, of func(*part) bool) (int64, seqset.Set) {
	for _, p := range parts {
		switch {
		case !of(p):
		case p.open:
			ahead = ahead.Union(p.set())
		default:
			position = max(position, p.end)
		}
	}
	return position, ahead.After(position)
}

// state is what a Settle changes of the subscription's row.
type state struct {
	position, settles, rateAt, epoch int64
	rate                             float64
}

// apply carries out the verdicts and moves the cursor, unless it has done so.
func (s *source) apply(ctx context.Context, tx *sql.Tx, attempt int64, parts []*part, at time.Time, also txWork) error {
	var now state
	var text string
	err := tx.QueryRowContext(ctx, `select position, ahead, settles, rate, rate_at, epoch from penstock_subscriptions where id = ?`, s.subID).
		Scan(&now.position, &text, &now.settles, &now.rate, &now.rateAt, &now.epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.gone(ctx, tx)
	case err != nil:
		return err
	case now.epoch != s.epoch:
		return s.end(s.fenced())
	case now.settles >= attempt:
		return nil
	}
	ahead, err := readRanges(text, nil)
	if err != nil {
		return err
	}
	if also != nil {
		if err := also(ctx, tx); err != nil {
			return err
		}
	}
	count := 0
	for _, p := range parts {
		if p.len() == 0 {
			continue // it is only passed
		}
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
	position, ahead := progress(parts, now.position, ahead, func(p *part) bool { return p.from == fromLog })
	if len(ahead) > 0 && ahead[0][0] == position+1 {
		position, ahead = ahead[0][1], ahead[1:] // all that follows is settled
	}
	_, err = tx.ExecContext(ctx, statement("settle"), position, ranges(ahead), attempt, count,
		decayed(now.rate, now.rateAt, at)+float64(count)/window.Seconds(), at.UnixMicro(), s.subID)
	return err
}

// settleReplays moves on the replays that parts are of.
func (s *source) settleReplays(ctx context.Context, tx *sql.Tx, parts []*part) error {
	done := map[int64]bool{}
	for _, p := range parts {
		id := p.replay
		if p.from != fromReplay || done[id] {
			continue
		}
		done[id] = true
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
		position, ahead = progress(parts, position, ahead, func(p *part) bool { return p.replay == id })
		if _, err := tx.ExecContext(ctx, `update penstock_replays set position = ?, ahead = ? where id = ?`, position, ranges(ahead), id); err != nil {
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
