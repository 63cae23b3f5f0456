package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// openBatch is a batch that was handed out and is not behind the cursor yet.
type openBatch struct {
	number uint64
	from   origin
	end    int64 // the position, in the log or the replay, once this batch and all before it are settled
	replay int64
	parked []place // of each message, if they are from the park
	count  int
	first  int64   // seq of the first message; the rest follow without gaps,
	seqs   []int64 // or this lists every one

	settled bool
	rulings []ruling
}

// ruling is a verdict on a message that was not delivered.
type ruling struct {
	index int
	penstock.Verdict
}

func (b *openBatch) seq(i int) int64 {
	if b.seqs != nil {
		return b.seqs[i]
	}
	return b.first + int64(i)
}

// Settle implements penstock.Source. Batches that wait for an earlier one are
// remembered in memory: if this reader dies, the next one sends them again.
func (s *source) Settle(ctx context.Context, settled ...penstock.Settled) error {
	return s.settle(ctx, nil, settled...)
}

// txWork is something to do in a transaction.
type txWork func(ctx context.Context, tx *sql.Tx) error

// settle is Settle with something else to do, if it is not nil, in the transaction in
// which the cursor passes: not a second time for a batch that was settled by a call
// whose answer was an error.
func (s *source) settle(ctx context.Context, also txWork, settled ...penstock.Settled) error {
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	rulings, err := s.check(settled)
	if err != nil {
		return err
	}
	// Nothing is marked before the transaction has committed, so that a failed
	// Settle can be tried again.
	leading := s.leading(rulings)
	err = s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.apply(ctx, tx, leading, rulings, time.Now(), also)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for b, list := range rulings {
		b.settled, b.rulings = true, list
	}
	for _, b := range leading {
		for _, p := range b.parked {
			s.returned = append(s.returned, p.line)
		}
	}
	s.open = s.open[len(leading):]
	return nil
}

// check finds the batches that are settled now, with what was not delivered.
func (s *source) check(settled []penstock.Settled) (map[*openBatch][]ruling, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[*openBatch][]ruling, len(settled))
	for _, st := range settled {
		number := st.Batch.Number
		if number > s.number {
			return nil, fmt.Errorf("batch %d of subscription %q was not returned by Fetch: settle what it returned", number, s.req.Subscription)
		}
		b := s.find(number)
		if b == nil || b.settled {
			continue // asked again, after an answer that did not arrive; or it had no messages
		}
		if st.Verdicts != nil && len(st.Verdicts) != b.count {
			return nil, fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", number, b.count, len(st.Verdicts))
		}
		var list []ruling
		for i, v := range st.Verdicts {
			if v.Outcome != penstock.Delivered {
				v.Failures = slices.Clone(v.Failures)
				list = append(list, ruling{i, v})
			}
		}
		found[b] = list
	}
	return found, nil
}

// find returns the open batch of that number; they are numbered in a row.
func (s *source) find(number uint64) *openBatch {
	if len(s.open) == 0 || number < s.open[0].number {
		return nil
	}
	return s.open[number-s.open[0].number]
}

// leading is the batches that the cursor can pass once those in settled are.
func (s *source) leading(settled map[*openBatch][]ruling) []*openBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.open {
		if _, now := settled[b]; !now && !b.settled {
			return s.open[:i:i]
		}
	}
	return s.open
}

// apply carries out the verdicts on the leading batches and moves the cursor
// past them. Without any it only checks that the lease is still ours.
func (s *source) apply(ctx context.Context, tx *sql.Tx, leading []*openBatch, now map[*openBatch][]ruling, at time.Time, also txWork) error {
	var position, rateAt, epoch int64
	var batch uint64
	var rate float64
	err := tx.QueryRowContext(ctx, `select position, batch, rate, rate_at, epoch from penstock_subscriptions where id = ?`, s.subID).
		Scan(&position, &batch, &rate, &rateAt, &epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.gone(ctx, tx)
	case err != nil:
		return err
	case epoch != s.epoch:
		return s.end(s.fenced())
	}
	count := 0
	for _, b := range leading {
		if b.number <= batch {
			continue // done by a Settle whose answer was an error
		}
		if also != nil {
			if err := also(ctx, tx); err != nil {
				return err
			}
			also = nil
		}
		list, ok := now[b]
		if !ok {
			list = b.rulings
		}
		if err := s.settleBatch(ctx, tx, b, list, at); err != nil {
			return fmt.Errorf("batch %d: %w", b.number, err)
		}
		count += b.count
		for _, r := range list {
			if r.Outcome == penstock.Parked {
				count--
			}
		}
		batch = b.number
		if b.from == fromLog {
			position = b.end
		}
	}
	if len(leading) == 0 {
		return nil
	}
	done, err := tx.ExecContext(ctx, settleSQL, position, batch, count, decayed(rate, rateAt, at)+float64(count)/window.Seconds(), at.UnixMicro(), s.subID, s.epoch)
	if err != nil {
		return err
	}
	return s.mine(ctx, tx, done)
}

// The rate is a mean that forgets: like a load average it needs two numbers and
// no history. After a minute of silence a third of it is left.
const window = time.Minute

func decayed(rate float64, since int64, now time.Time) float64 {
	silence := max(now.Sub(time.UnixMicro(since)), 0)
	return rate * math.Exp(-silence.Seconds()/window.Seconds())
}
