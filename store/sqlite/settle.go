package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/penstock/penstock"
)

// openBatch is a batch that was handed out and is not behind the cursor yet.
type openBatch struct {
	number uint64
	end    int64 // the position once this batch and all before it are settled
	count  int
	again  int     // the first so many are dead letters sent back
	first  int64   // seq of the first message; the rest follow without gaps,
	seqs   []int64 // or this lists every one

	settled bool
	burials []burial
}

// burial is a message that is to be a dead letter.
type burial struct {
	index   int
	attempt int
	err     string
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
	if err := s.usable(ctx); err != nil || s.subID == 0 {
		return err
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	burials, err := s.check(settled)
	if err != nil {
		return err
	}
	// Nothing is marked before the transaction has committed, so that a failed
	// Settle can be tried again.
	leading := s.leading(burials)
	err = s.store.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return s.apply(ctx, tx, leading, burials)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for b, list := range burials {
		b.settled, b.burials = true, list
	}
	s.open = s.open[len(leading):]
	return nil
}

// check finds the batches that are settled, and their dead letters.
func (s *source) check(settled []penstock.Settled) (map[*openBatch][]burial, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[*openBatch][]burial, len(settled))
	for _, st := range settled {
		b := s.find(st.Batch.Number)
		if b == nil {
			return nil, fmt.Errorf("batch %d of subscription %q is not open: settle each batch of Fetch once", st.Batch.Number, s.req.Subscription)
		}
		if st.Verdicts != nil && len(st.Verdicts) != b.count {
			return nil, fmt.Errorf("batch %d has %d messages and %d verdicts: give one for each, or nil", b.number, b.count, len(st.Verdicts))
		}
		var list []burial
		for i, v := range st.Verdicts {
			if v.Outcome == penstock.Delivered {
				continue
			}
			attempt := 1
			if i < len(st.Batch.Messages) {
				attempt = st.Batch.Messages[i].Attempt
			}
			list = append(list, burial{index: i, attempt: attempt, err: v.Err})
		}
		found[b] = list
	}
	return found, nil
}

// find returns the open batch of that number; they are numbered in a row.
func (s *source) find(number uint64) *openBatch {
	if len(s.open) == 0 || number < s.open[0].number || number-s.open[0].number >= uint64(len(s.open)) {
		return nil
	}
	return s.open[number-s.open[0].number]
}

// leading is the batches that the cursor can pass once those in settled are.
func (s *source) leading(settled map[*openBatch][]burial) []*openBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.open {
		if _, now := settled[b]; !now && !b.settled {
			return s.open[:i:i]
		}
	}
	return s.open
}

// apply moves the cursor past the leading batches. Without any it only checks
// that the lease is still ours.
func (s *source) apply(ctx context.Context, tx *sql.Tx, leading []*openBatch, now map[*openBatch][]burial) error {
	var position, rateAt, epoch int64
	var rate float64
	err := tx.QueryRowContext(ctx, `select position, rate, rate_at, epoch from penstock_subscriptions where id = ?`, s.subID).Scan(&position, &rate, &rateAt, &epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.end(noOutbox(s.box.name))
	case err != nil:
		return err
	case epoch != s.epoch:
		return s.end(s.fenced())
	case len(leading) == 0:
		return nil
	}
	count := 0
	at := time.Now()
	for _, b := range leading {
		list, ok := now[b]
		if !ok {
			list = b.burials
		}
		if err := s.settleBatch(ctx, tx, b, list, at.UnixMilli()); err != nil {
			return fmt.Errorf("batch %d: %w", b.number, err)
		}
		count += b.count
		position = max(position, b.end)
	}
	done, err := tx.ExecContext(ctx, settleSQL, position, count, decayed(rate, rateAt, at)+float64(count)/window.Seconds(), at.UnixMilli(), s.subID, s.epoch)
	if err != nil {
		return err
	}
	return s.mine(ctx, tx, done)
}

// settleBatch writes what is more than the cursor: dead letters come and go.
func (s *source) settleBatch(ctx context.Context, tx *sql.Tx, b *openBatch, burials []burial, at int64) error {
	buried := make(map[int]bool, len(burials))
	for _, d := range burials {
		buried[d.index] = true
		seq := b.seq(d.index)
		if d.index < b.again {
			if _, err := tx.ExecContext(ctx, buryAgainSQL, d.attempt, d.err, at, s.subID, seq); err != nil {
				return err
			}
			continue
		}
		done, err := tx.ExecContext(ctx, on(Table(s.box.name), burySQL), s.subID, d.attempt, d.err, at, seq)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil {
			return err
		} else if n != 1 {
			return penstock.WithHint(fmt.Errorf("message %d cannot become a dead letter: it is no longer in %s", seq, Table(s.box.name)),
				"leave deleting from this table to penstock; it is sent again after a restart if it is put back")
		}
	}
	for i := range b.again {
		if buried[i] {
			continue
		}
		if _, err := tx.ExecContext(ctx, `delete from penstock_dead_letters where subscription_id = ? and seq = ?`, s.subID, b.seq(i)); err != nil {
			return err
		}
	}
	return nil
}

// The rate is a mean that forgets: like a load average it needs two numbers and
// no history. After a minute of silence a third of it is left.
const window = time.Minute

func decayed(rate float64, since int64, now time.Time) float64 {
	silence := max(now.Sub(time.UnixMilli(since)), 0)
	return rate * math.Exp(-silence.Seconds()/window.Seconds())
}
