package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// leaseLock is the first half of the advisory lock under which a lease changes
// hands; the subscription's id is the second. _write_cursor has the same number.
const leaseLock = 0x70656e6c // "penl"

// head is a row of the cursor log.
type head struct {
	epoch   int64
	n       int64
	holder  string
	until   time.Time
	since   time.Time
	expired bool
	cursor  cursor
	count   int64

	timeline int64 // of the log of the server that wrote it, 0: not known
}

const headColumns = `select epoch, n, holder, lease_until, lease_until <= clock_timestamp(), done::text, low,
	coalesce(upto::text, ''), coalesce(upto_low, 0), coalesce(pos, 0), settled, system, since, coalesce(timeline, 0), ahead::text from `

func (h *head) scan(row pgx.Row) (err error) {
	c, ahead := &h.cursor, ""
	if err := row.Scan(&h.epoch, &h.n, &h.holder, &h.until, &h.expired, &c.done.snap, &c.done.low,
		&c.upto.snap, &c.upto.low, &c.pos, &h.count, &c.system, &h.since, &h.timeline, &ahead); err != nil {
		return err
	}
	c.ahead, err = readMultirange(ahead)
	return err
}

// headOf is the head of a subscription's log or, before a relay has begun, one that covers nothing.
func (s *Store) headOf(ctx context.Context, on querier, id int64) (h head, began bool, err error) {
	err = h.scan(on.QueryRow(ctx, headColumns+s.table("_head")+"($1)", id))
	if errors.Is(err, pgx.ErrNoRows) {
		return head{cursor: cursor{done: snapshotBound{snap: nothing}}, expired: true}, false, nil
	}
	return h, true, err
}

// held returns a *HeldError if another holder has the lease, and nil if it may be free.
func (s *Store) held(ctx context.Context, req driver.Subscribe) error {
	if req.Ephemeral {
		return nil
	}
	var h head
	err := h.scan(s.pool.QueryRow(ctx, headColumns+s.table("_subscription")+" s, lateral "+s.table("_head")+"(s.id) where s.outbox = $1 and s.name = $2", req.Outbox, req.Subscription))
	if err == nil && !h.expired {
		return &penstock.HeldError{Subscription: req.Subscription, Holder: h.holder, Until: h.until}
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) && sqlState(err) == "" {
		s.pool.Reset() // an idle connection may have died; the session's own will show it
	}
	return nil
}

// acquire creates the subscription if needed and takes its lease: the next epoch,
// with the cursor of the one before, or start if there was none.
func (src *Source) acquire(ctx context.Context, sess *session, start cursor) (cursor, error) {
	tx, err := sess.write.Begin(ctx)
	if err != nil {
		return cursor{}, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if src.id, err = subscriptionID(ctx, tx, src.store.table("_subscription"), src.req); err != nil {
		return cursor{}, err
	}
	// One contender at a time; read committed, so the next statements see the writes of the one
	// before.
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, $2)", leaseLock, int32(src.id)); err != nil {
		return cursor{}, err
	}
	h, err := src.head(ctx, sess)
	began := errors.Is(err, pgx.ErrNoRows)
	switch {
	case began:
		h.cursor = start
	case err != nil:
		return cursor{}, err
	case !h.expired:
		return cursor{}, &penstock.HeldError{Subscription: src.req.Subscription, Holder: h.holder, Until: h.until}
	}
	src.epoch, src.count = h.epoch+1, h.count
	var taken bool
	if err := tx.QueryRow(ctx, "select exists (select from "+src.store.table("_cursor")+" where subscription = $1 and epoch >= $2), clock_timestamp()", src.id, src.epoch).Scan(&taken, &src.since); err != nil {
		return cursor{}, err
	}
	if taken { // the head was not the head; never take an epoch twice
		return cursor{}, fmt.Errorf("epoch %d of subscription %q is taken already: try again", src.epoch, src.req.Subscription)
	}
	if err = src.goOn(ctx, tx, sess, h); err == nil {
		src.logBefore(began, h)
	}
	return h.cursor, err
}

// logBefore logs where a new subscription begins, or which relay has let the lease end.
func (src *Source) logBefore(began bool, h head) {
	log := src.store.log.With("outbox", src.req.Outbox, "subscription", src.req.Subscription)
	switch {
	case began && src.req.Start == driver.FromNow:
		log.Info("the subscription is new and begins now: it does not get the messages that are there already")
	case began:
		log.Info("the subscription is new and begins with the oldest message that is still there: it does not get those that were reclaimed before")
	case h.holder != "": // a relay that stops leaves none
		log.Info("the relay before did not give the lease back: it ended", "holder", h.holder, "until", h.until.UTC())
	}
}

// goOn writes the beginning of a new session, under the lock of a takeover.
func (src *Source) goOn(ctx context.Context, tx pgx.Tx, sess *session, h head) error {
	if err := src.writeCursor(ctx, sess, h.cursor, h.count, src.req.Lease); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if h.timeline != 0 && sess.timeline != 0 && h.timeline != sess.timeline && h.cursor.system == sess.system {
		src.store.log.Warn("the server's timeline has changed, as after a failover or a recovery to a point in time: transactions that had not reached it are gone, although their messages may have been delivered; seqs may be used again, ids are not",
			"outbox", src.req.Outbox, "subscription", src.req.Subscription, "was", h.timeline, "is", sess.timeline)
	}
	return nil
}

func subscriptionID(ctx context.Context, conn pgx.Tx, table string, req driver.Subscribe) (id int64, err error) {
	find := "select id from " + table + " where outbox = $1 and name = $2"
	err = conn.QueryRow(ctx, find, req.Outbox, req.Subscription).Scan(&id)
	if !errors.Is(err, pgx.ErrNoRows) {
		return id, err
	}
	if _, err := conn.Exec(ctx, "insert into "+table+" (outbox, name) values ($1, $2) on conflict do nothing", req.Outbox, req.Subscription); err != nil {
		return 0, err
	}
	return id, conn.QueryRow(ctx, find, req.Outbox, req.Subscription).Scan(&id)
}

// resume reads the durable cursor for a new session under the same lease. It takes the lock that a
// takeover takes. A write of the session before may still be under way on the server, and this must
// read its result.
func (src *Source) resume(ctx context.Context, sess *session) (cursor, error) {
	tx, err := sess.write.Begin(ctx)
	if err != nil {
		return cursor{}, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1, $2)", leaseLock, int32(src.id)); err != nil {
		return cursor{}, err
	}
	h, err := src.head(ctx, sess)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // the outbox was dropped, or the subscription
		return cursor{}, penstock.ErrFenced
	case err != nil:
		return cursor{}, err
	case !src.mine(h):
		return cursor{}, penstock.ErrFenced
	}
	src.mu.Lock()
	src.count = h.count
	src.mu.Unlock()
	sess.n = h.n
	return h.cursor, src.goOn(ctx, tx, sess, h)
}

// mine distinguishes this source's lease from another's. Its epoch alone does not: after a failover
// that lost the takeover, the epoch is taken again.
func (src *Source) mine(h head) bool { return h.epoch == src.epoch && h.since.Equal(src.since) }

func (src *Source) head(ctx context.Context, sess *session) (h head, err error) {
	err = h.scan(sess.write.QueryRow(ctx, headColumns+src.store.table("_head")+"($1)", src.id))
	return h, err
}

// startingCursor is where a new subscription begins.
func (src *Source) startingCursor(ctx context.Context, sess *session) (c cursor, err error) {
	c = cursor{done: snapshotBound{snap: nothing}, system: sess.system}
	if src.req.Start == driver.FromNow {
		c.done, _, err = sess.freshBound(ctx)
		return c, err
	}
	// A row that is visible and has an xid that was not given yet came from another cluster.
	var restored bool
	err = sess.write.QueryRow(ctx, "select exists (select from "+src.store.table(src.req.Outbox)+" where xid >= pg_snapshot_xmax(pg_current_snapshot()))").Scan(&restored)
	if restored {
		c.system = noSystem
	}
	return c, err
}
