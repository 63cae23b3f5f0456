package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
)

// replaying is the replay that is being read.
type replaying struct {
	id    int64 // 0: none
	pos   int64
	args  [7][]byte // $2 to $8 of replay.sql
	ended []int64   // those that were read to their end; they are deleted when that is settled
}

// replayed is how far a settled batch brings a replay.
type replayed struct {
	id  int64
	pos *int64 // nil: to its end
}

// replays gathers them for one write; of one replay, the last counts.
type replays struct {
	ids []int64
	pos []*int64
}

func (r *replays) empty() bool { return len(r.ids) == 0 }

func (r *replays) add(d replayed) {
	if n := len(r.ids); n > 0 && r.ids[n-1] == d.id {
		r.pos[n-1] = d.pos
		return
	}
	r.ids, r.pos = append(r.ids, d.id), append(r.pos, d.pos)
}

func (r *replays) args() []any { return []any{notNil(r.ids), notNil(r.pos)} }

// fetchReplay returns the next page of a replay, nil if no replay has one.
func (src *Source) fetchReplay(ctx context.Context, sess *session, limit penstock.Limit) (*pending, error) {
	r := &sess.aside.replaying
	for {
		if r.id == 0 {
			if found, err := src.nextReplay(ctx, sess, r); err != nil || !found {
				return nil, err
			}
		}
		rows := sess.aside.rows(limit)
		params := [][]byte{number(r.pos)}
		params = append(append(params, r.args[:]...), number(int64(rows)))
		page, err := sess.query(ctx, stmtReplay, false, rows, limit.Bytes, params...)
		if err != nil {
			return nil, err
		}
		p := &pending{origin: fromReplay, messages: page.messages, replay: replayed{id: r.id}}
		if len(page.messages) == 0 { // its last page was a full one: another may wait behind it
			if err := src.endReplay(ctx, sess, p.replay); err != nil {
				return nil, err
			}
			r.end()
			continue
		}
		sess.aside.measure(page.bytes, len(page.messages))
		if p.lines, err = src.behind(ctx, sess, page.messages); err != nil {
			sess.kill() // as in fetchStream
			return nil, err
		}
		if page.cut || len(page.messages) == rows {
			pos := page.messages[len(page.messages)-1].Seq
			r.pos, p.replay.pos = pos, &pos
			sess.aside.replay = true
		} else {
			r.end()
		}
		return p, nil
	}
}

// end notes that all of a replay was read; the next one may begin.
func (r *replaying) end() { *r = replaying{ended: append(r.ended, r.id)} }

// nextReplay finds the next request.
func (src *Source) nextReplay(ctx context.Context, sess *session, r *replaying) (bool, error) {
	var system int64
	var texts [7]string
	err := sess.read.QueryRow(ctx, "select id, pos, to_seq::text, created_from::text, created_to::text, done::text, upto::text, upto_pos::text, low::text, system from "+
		src.store.table("_replay")+" where subscription = $1 and id <> all ($2) order by id limit 1", src.id, notNil(r.ended)).
		Scan(&r.id, &r.pos, &texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &system)
	if errors.Is(err, pgx.ErrNoRows) {
		r.id = 0
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i, text := range texts {
		r.args[i] = []byte(text)
	}
	if system != sess.system { // another cluster's snapshots: all that is there now
		everything := []byte(fmt.Sprintf("%d:%d:", math.MaxInt64, math.MaxInt64))
		r.args[3], r.args[4] = everything, everything
	}
	return true, nil
}

// endReplay removes a replay that has nothing left, once what it returned is settled.
func (src *Source) endReplay(ctx context.Context, sess *session, r replayed) error {
	src.writing.Lock()
	defer src.writing.Unlock()
	src.mu.Lock()
	waits := false
	for i := len(src.pending) - 1; i >= 0 && !waits; i-- { // its last batch is to do it
		if p := &src.pending[i]; p.origin == fromReplay && p.replay.id == r.id {
			p.replay.pos, waits = nil, true
		}
	}
	w := src.leading()
	src.mu.Unlock()
	if waits {
		return nil
	}
	w.replays.add(r)
	return src.persist(ctx, sess, w)
}

// Replay has a subscription deliver again what the cursor that is durable now covers.
func (s *Store) Replay(ctx context.Context, r penstock.Replay) (count int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	id, err := s.subscription(ctx, r.Outbox, r.Subscription)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Reclaim may not come between counting and the request.
		if _, err := tx.Exec(ctx, "lock table "+s.table(r.Outbox)+" in access share mode; set local enable_seqscan = off", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		var h head
		if err := h.scan(tx.QueryRow(ctx, headColumns+s.table("_head")+"($1)", id)); errors.Is(err, pgx.ErrNoRows) {
			return nil // nothing is settled
		} else if err != nil {
			return err
		}
		c, to := h.cursor, r.ToSeq
		upto, uptoPos := c.done.snap, int64(0)
		if c.paging() {
			upto, uptoPos = c.upto.snap, c.pos
		}
		if to == 0 {
			to = math.MaxInt64
		}
		from, before := "-infinity", "infinity"
		if !r.From.IsZero() {
			from = r.From.Format(time.RFC3339Nano)
		}
		if !r.To.IsZero() {
			before = r.To.Format(time.RFC3339Nano)
		}
		const where = ` where e.seq > $1 and e.seq <= $2 and e.created_at >= $3::timestamptz and e.created_at < $4::timestamptz
			and (pg_visible_in_snapshot(e.xid, $5::pg_snapshot) or e.seq <= $7 and pg_visible_in_snapshot(e.xid, $6::pg_snapshot)
				or e.seq <= $8 and e.xid >= pg_snapshot_xmax($5::pg_snapshot))`
		args := []any{r.FromSeq - 1, to, from, before, c.done.snap, upto, uptoPos, c.done.low}
		var last int64
		if err := tx.QueryRow(ctx, "select count(*), coalesce(max(e.seq), 0) from "+s.table(r.Outbox)+" e"+where, args...).Scan(&count, &last); err != nil || count == 0 {
			return err
		}
		args[1] = last
		_, err := tx.Exec(ctx, "insert into "+s.table("_replay")+` (pos, to_seq, created_from, created_to, done, upto, upto_pos, low, subscription, outbox, system)
			values ($1, $2, $3::timestamptz, $4::timestamptz, $5::pg_snapshot, $6::pg_snapshot, $7, $8, $9, $10, $11)`, append(args, id, r.Outbox, c.system)...)
		return err
	})
	if sqlState(err) == "23503" { // it was dropped meanwhile
		return 0, noSubscription(r.Outbox, r.Subscription)
	}
	return count, s.explain(err)
}
