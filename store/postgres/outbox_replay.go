package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/seqset"
)

// replaying is the replay that is being read.
type replaying struct {
	id     int64 // 0: none
	pos    int64
	args   [8][]byte  // $2 to $9 of replay.sql
	before seqset.Set // of it an earlier session has settled these
	others seqset.Set // in its range, but parked or dead letters at the request
	ended  []int64    // those that were read to their end; they are deleted when that is settled
	last   *pending   // the last batch of it
}

// replayed is how far a settled batch brings a replay.
type replayed struct {
	id  int64
	pos *int64 // nil: to its end
}

// replays gathers them for one write, by id.
type replays struct {
	ids   []int64
	pos   []*int64
	ahead []seqset.Set
	over  []bool
}

func (r *replays) empty() bool { return len(r.ids) == 0 }

func (r *replays) at(id int64) int {
	i := slices.Index(r.ids, id)
	if i < 0 {
		i = len(r.ids)
		r.ids, r.pos, r.ahead, r.over = append(r.ids, id), append(r.pos, nil), append(r.ahead, nil), append(r.over, false)
	}
	return i
}

// add moves a replay on by a batch, or by the part of it that is settled, if it is open.
func (r *replays) add(n *news) {
	i := r.at(n.replay.id)
	switch {
	case n.open:
		r.ahead[i] = r.ahead[i].Union(n.seqs())
	case n.replay.pos != nil:
		r.pos[i] = n.replay.pos
	default:
		r.over[i] = true
	}
}

// end is for a replay that has nothing left.
func (r *replays) end(id int64) { r.over[r.at(id)] = true }

// params are those of settle.sql for replays.
func (r *replays) params() pgx.StrictNamedArgs {
	replays := make([]map[string]any, len(r.ids))
	for i, s := range r.ahead {
		replays[i] = map[string]any{"id": r.ids[i], "pos": r.pos[i], "ahead": string(multirange(s)), "over": r.over[i]}
	}
	return pgx.StrictNamedArgs{"replays": replays}
}

// fetchReplay returns the next page of a replay, nil if no replay has one.
func (src *Source) fetchReplay(ctx context.Context, sess *session, limit driver.Limit) (*pending, error) {
	r := &sess.outOfBand.replaying
	for {
		if r.id == 0 {
			if found, err := src.nextReplay(ctx, sess, r); err != nil || !found {
				return nil, err
			}
		}
		rows := sess.outOfBand.rows(limit)
		params := [][]byte{number(r.pos)}
		params = append(append(params, r.args[:]...), number(int64(rows)))
		page, err := sess.query(ctx, stmtReplay, false, rows, limit.Bytes, params...)
		if err != nil {
			return nil, err
		}
		read := len(page.messages)
		if read > 0 {
			r.pos = page.messages[read-1].Seq
		}
		full := page.cut || read == rows
		page.messages = slices.DeleteFunc(page.messages, func(m penstock.Message) bool { return r.before.Has(m.Seq) || r.others.Has(m.Seq) })
		p := &pending{origin: fromReplay, messages: page.messages, replay: replayed{id: r.id}}
		if len(page.messages) == 0 && full {
			continue
		}
		if len(page.messages) == 0 { // its last page was a full one: another may wait behind it
			if err := src.endReplay(ctx, sess, r); err != nil {
				return nil, err
			}
			r.end()
			continue
		}
		sess.outOfBand.measure(page.bytes, len(page.messages))
		if p.keyOrder, err = src.behind(ctx, sess, page.messages); err != nil {
			sess.kill() // as in fetchStream
			return nil, err
		}
		if full {
			pos := r.pos
			p.replay.pos, r.last = &pos, p
			sess.outOfBand.replay = true
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
	var texts [8]string
	var ahead, others string
	err := sess.read.QueryRow(ctx, "select id, pos, to_seq::text, created_from::text, created_to::text, done::text, upto::text, upto_pos::text, low::text, besides::text, ahead::text, others::text, system from "+
		src.store.table("_replay")+" where subscription = $1 and id <> all ($2) order by id limit 1", src.id, notNil(r.ended)).
		Scan(&r.id, &r.pos, &texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &texts[7], &ahead, &others, &system)
	if errors.Is(err, pgx.ErrNoRows) {
		r.id = 0
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if r.before, err = readMultirange(ahead); err != nil {
		return false, err
	}
	if r.others, err = readMultirange(others); err != nil {
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

// endReplay removes a replay that has nothing left, once all that it returned is settled.
func (src *Source) endReplay(ctx context.Context, sess *session, r *replaying) error {
	src.writing.Lock()
	defer src.writing.Unlock()
	src.mu.Lock()
	waits := r.last != nil && r.last.number > src.passed
	src.mu.Unlock()
	if waits { // its last batch is to do it
		r.last.replay.pos = nil
		return nil
	}
	w := src.nothing()
	w.replays.end(r.id)
	return src.persist(ctx, sess, w)
}

// Replay implements driver.Operator. It replays messages that the durable cursor covers now,
// without parked messages and dead letters.
func (s *Store) Replay(ctx context.Context, r admin.Replay) (count int64, err error) {
	id, err := s.subscription(ctx, r.Outbox, r.Subscription)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Reclaim may not come between counting and the request.
		if _, err := tx.Exec(ctx, "lock table "+s.table(r.Outbox)+" in access share mode; set local enable_seqscan = off; set local jit = off", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		h, others, err := s.settledOf(ctx, tx, r, id)
		if errors.Is(err, pgx.ErrNoRows) {
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
				or e.seq <= $8 and e.xid >= pg_snapshot_xmax($5::pg_snapshot) or e.seq <@ $9::int8multirange)
			and not e.seq <@ $10::int8multirange`
		args := []any{r.FromSeq - 1, to, from, before, c.done.snap, upto, uptoPos, c.done.low, string(multirange(c.ahead)), others}
		var last int64
		if err := tx.QueryRow(ctx, "select count(*), coalesce(max(e.seq), 0) from "+s.table(r.Outbox)+" e"+where, args...).Scan(&count, &last); err != nil || count == 0 || r.CountOnly {
			return err
		}
		args[1] = last
		newest := int64(0)
		for alone := false; !alone; {
			if newest, err = s.besides(ctx, tx, r, id, newest, args); err != nil {
				return err
			}
			if alone, err = s.newestReplay(ctx, tx, id, newest); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, "insert into "+s.table("_replay")+` (pos, to_seq, created_from, created_to, done, upto, upto_pos, low, besides, others, subscription, outbox, system)
			values ($1, $2, $3::timestamptz, $4::timestamptz, $5::pg_snapshot, $6::pg_snapshot, $7, $8, $9::int8multirange, $10::int8multirange, $11, $12, $13)`, append(args, id, r.Outbox, c.system)...)
		return err
	})
	if sqlState(err) == "23503" { // it was dropped meanwhile
		return 0, noSubscription(r.Outbox, r.Subscription)
	}
	return count, s.explain(err)
}

// besides looks for messages of a range in replays after one, and returns the newest that it has looked at. It may read all of a range, and blocks no other
// transaction.
func (s *Store) besides(ctx context.Context, tx pgx.Tx, r admin.Replay, id, after int64, args []any) (newest int64, err error) {
	var underWay bool
	err = tx.QueryRow(ctx, "select coalesce(max(r.id), $1), coalesce(bool_or(r.pos < $4 and r.to_seq >= $3 and r.created_from < $6::timestamptz and r.created_to > $5::timestamptz and exists (select from "+s.table(r.Outbox)+` e
			where e.seq > greatest(r.pos, $3 - 1) and e.seq <= least(r.to_seq, $4) and e.created_at >= greatest(r.created_from, $5::timestamptz) and e.created_at < least(r.created_to, $6::timestamptz))), false)
			from `+s.table("_replay")+" r where r.subscription = $2 and r.id > $1", after, id, r.FromSeq, args[1], args[2], args[3]).Scan(&newest, &underWay)
	if underWay {
		err = penstock.WithHint(fmt.Errorf("%w: subscription %q of outbox %q", penstock.ErrReplaying, r.Subscription, r.Outbox), "wait until it is delivered, or replay another range; penstock status shows when it is done")
	}
	return newest, err
}

// newestReplay reports whether a replay is a subscription's newest. Then no other session can request one until tx has ended. Else the lock, which the
// cursor's writes need, is given back.
func (s *Store) newestReplay(ctx context.Context, tx pgx.Tx, id, replay int64) (yes bool, err error) {
	held, err := tx.Begin(ctx)
	if err != nil {
		return false, err
	}
	if _, err = held.Exec(ctx, "select pg_advisory_xact_lock($1, $2)", leaseLock, int32(id)); err == nil {
		err = held.QueryRow(ctx, "select not exists (select from "+s.table("_replay")+" where subscription = $1 and id > $2)", id, replay).Scan(&yes)
	}
	if yes && err == nil {
		return true, held.Commit(ctx)
	}
	return false, errors.Join(err, held.Rollback(context.WithoutCancel(ctx)))
}

// settledOf is the cursor of a subscription, and the parked messages and dead letters that it
// covers in a replay's range, at one moment. Writes take the same lock, and a savepoint gives it
// back. pgx.ErrNoRows without a cursor.
func (s *Store) settledOf(ctx context.Context, tx pgx.Tx, r admin.Replay, id int64) (h head, others string, err error) {
	held, err := tx.Begin(ctx)
	if err != nil {
		return h, "", err
	}
	defer func() { err = errors.Join(err, held.Rollback(context.WithoutCancel(ctx))) }()
	if _, err := held.Exec(ctx, "select pg_advisory_xact_lock($1, $2)", leaseLock, int32(id)); err != nil {
		return h, "", err
	}
	if err := h.scan(held.QueryRow(ctx, headColumns+s.table("_head")+"($1)", id)); err != nil {
		return h, "", err
	}
	err = held.QueryRow(ctx, statement("others", s.schema, r.Outbox), id, r.FromSeq, r.ToSeq).Scan(&others)
	return h, others, err
}
