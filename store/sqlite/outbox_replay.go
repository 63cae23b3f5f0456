package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/seqset"
)

// Replay implements driver.Operator. The range stays in the outbox until its
// last message is settled.
func (s *Store) Replay(ctx context.Context, r admin.Replay) (n int64, err error) {
	for {
		var sub subscription
		var first, last int64
		bounds := replayBounds(r)
		// Counting reads the range, which may take long: not under the lock.
		err := s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if sub, err = findSubscription(ctx, tx, r.Outbox, r.Subscription); err != nil {
				return err
			}
			var text, others string
			err := tx.QueryRowContext(ctx, `select position, ahead from penstock_subscriptions where id = ?`, sub.id).Scan(&bounds.covered, &text)
			ahead, err := readRanges(text, err)
			if err != nil {
				return err
			}
			bounds.besides = array(ahead.Seqs())
			// They may be delivered before the replay is read so far, and must not come once more.
			if err := tx.QueryRowContext(ctx, statement("others"), bounds.args(sub.id)...).Scan(&others); err != nil {
				return err
			}
			var seqs []int64
			if err := json.Unmarshal([]byte(others), &seqs); err != nil {
				return err
			}
			bounds.before = seqset.Of(seqs)
			return tx.QueryRowContext(ctx, on(Table(r.Outbox), statement("count_replay")), append(bounds.args(sub.id), sql.Named("others", others))...).Scan(&n, &first, &last)
		})
		if err != nil || n == 0 {
			return 0, err
		}
		kept := false
		err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
			// Reclaim begins with the lowest: while that is there, all are.
			if err := tx.QueryRowContext(ctx, on(Table(r.Outbox), `select exists (select 1 from {table} where seq = ?)`), first).Scan(&kept); err != nil || !kept {
				return err
			}
			if now, err := findSubscription(ctx, tx, r.Outbox, r.Subscription); err != nil || now.id != sub.id {
				kept = false
				return err
			}
			underWay := false
			if err := tx.QueryRowContext(ctx, `select exists (select 1 from penstock_replays where subscription_id = ? and position < ? and last >= ? and created_from < ? and created_to > ?)`,
				sub.id, last, first, bounds.to, bounds.from).Scan(&underWay); err != nil {
				return err
			}
			if underWay {
				return penstock.WithHint(fmt.Errorf("%w: subscription %q of outbox %q", penstock.ErrReplaying, r.Subscription, r.Outbox), "wait until it is delivered, or replay another range; penstock status shows when it is done")
			}
			_, err := tx.ExecContext(ctx, `insert into penstock_replays (subscription_id, position, last, created_from, created_to, others, covered, besides) values (?, ?, ?, ?, ?, ?, ?, ?)`,
				sub.id, first-1, last, bounds.from, bounds.to, ranges(bounds.before), bounds.covered, bounds.besides)
			return err
		})
		if err != nil || kept {
			return n, err
		}
	}
}

// replayBounds makes the bounds of a request. Messages are dated in
// milliseconds.
func replayBounds(r admin.Replay) replay {
	b := replay{next: r.FromSeq - 1, last: math.MaxInt64, from: math.MinInt64, to: math.MaxInt64}
	if r.ToSeq != 0 {
		b.last = r.ToSeq
	}
	if !r.From.IsZero() {
		b.from = r.From.Add(time.Millisecond - 1).UnixMilli()
	}
	if !r.To.IsZero() {
		b.to = r.To.Add(time.Millisecond - 1).UnixMilli()
	}
	return b
}

// replay is how far the reading of one has come.
type replay struct {
	id         int64
	next, last int64      // read on behind next
	from, to   int64      // milliseconds
	covered    int64      // messages settled at the request: up to this seq,
	besides    string     // and these
	before     seqset.Set // messages settled again by a reader before, and those parked or dead letters at the request
	end        int64      // of the last batch that was read
	unread     bool
}

// args are the parameters of both statements that read a replay.
func (r *replay) args(subscription int64) []any {
	return []any{sql.Named("after", r.next), sql.Named("last", r.last), sql.Named("from", r.from), sql.Named("to", r.to),
		sql.Named("covered", r.covered), sql.Named("besides", r.besides), sql.Named("subscription", subscription)}
}

// readReplay reads messages that must be delivered again.
func (s *source) readReplay(ctx context.Context, p *page, at fetchable) error {
	if at.replay == 0 {
		return nil
	}
	r := s.replay
	if r.id != at.replay {
		r = replay{id: at.replay, unread: true}
		var ahead, others string
		err := s.store.readers.QueryRowContext(ctx, `select position, last, created_from, created_to, covered, besides, ahead, others from penstock_replays where id = ?`, r.id).
			Scan(&r.next, &r.last, &r.from, &r.to, &r.covered, &r.besides, &ahead, &others)
		if errors.Is(err, sql.ErrNoRows) {
			return s.gone(ctx, s.store.readers) // only with the subscription
		}
		if r.before, err = readRanges(ahead, err); err != nil {
			return err
		}
		besides, err := readRanges(others, nil)
		if err != nil {
			return err
		}
		r.before = r.before.Union(besides)
		r.end = r.next
	}
	next, err := p.readOn(r.next, r.before, func(after int64, limit int) (*sql.Rows, error) {
		r.next = after
		return s.again.QueryContext(ctx, append(r.args(s.subID), sql.Named("limit", limit))...)
	})
	if err != nil {
		return err
	}
	r.next, r.unread = next, p.full
	if len(p.msgs) > 0 {
		if err := s.setBehindParked(ctx, p, at); err != nil {
			return err
		}
		p.from, p.replay, p.end = fromReplay, r.id, r.next
		if !r.unread {
			p.end = math.MaxInt64
		}
		r.end = p.end
	} else {
		s.mu.Lock()
		s.spent = spent{r.id, r.end} // for Renew to end once what was read before is settled
		s.mu.Unlock()
	}
	s.replay = r
	return nil
}

// spent is a replay of which nothing was left to read behind a position.
type spent struct{ id, end int64 }

// endReplay ends a replay whose last messages were gone when they were to be
// read, so that no batch has its end.
func (s *source) endReplay(ctx context.Context, tx *sql.Tx) error {
	s.mu.Lock()
	over := s.spent
	s.mu.Unlock()
	if over.id == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, `delete from penstock_replays where id = ? and position >= ?`, over.id, over.end)
	return err
}
