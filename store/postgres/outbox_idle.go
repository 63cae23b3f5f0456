package postgres

import (
	"context"
	"errors"
	"strings"
)

// nothingNew answers for an idle outbox as a poll would, at a fraction of its
// cost: a poll opens every index of every segment. Nothing new can be visible if
//
//   - the sequence is at the cursor's bound: no seq was drawn since, and no
//     transaction younger than the cursor has one from before (see snapshotBound);
//   - the transactions in flight at the cursor still are.
//
// It is asked only after a poll has found nothing.
func (src *Source) nothingNew(ctx context.Context, sess *session) (bool, error) {
	if !sess.idle {
		return false, nil
	}
	t, err := src.peek(ctx, sess)
	if err != nil {
		return false, err
	}
	if t.oid != sess.oid {
		return false, noOutbox(src.req.Outbox)
	}
	return t.high == sess.at.done.low && stillInFlight(sess.at.done, snapshotBound{snap: t.snap}), nil
}

var errNoPeek = errors.New("the poll returned no row")

// stillInFlight reports whether every transaction in flight at then is in flight now.
func stillInFlight(then, now snapshotBound) bool {
	was := strings.Trim(then.xip(), "{}")
	if was == "" {
		return true
	}
	is := "," + strings.Trim(now.xip(), "{}") + ","
	for xid := range strings.SplitSeq(was, ",") {
		if !strings.Contains(is, ","+xid+",") {
			return false
		}
	}
	return true
}
