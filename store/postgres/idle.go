package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// nothingNew answers for an idle outbox what a poll would, at a fraction of its
// cost: a poll opens every index of every segment. Nothing new can be visible if
//
//   - the sequence stands at the cursor's bound: nobody has drawn a seq since, and
//     no transaction younger than the cursor has one from before (see mark);
//   - whoever was in flight at the cursor still is.
//
// It is asked only after a poll has found nothing.
func (src *Source) nothingNew(ctx context.Context, sess *session) (bool, error) {
	if !sess.idle {
		return false, nil
	}
	result := sess.read.PgConn().ExecPrepared(ctx, stmtTick, [][]byte{number(src.id)}, nil, nil).Read()
	if result.Err != nil {
		return false, result.Err
	}
	if len(result.Rows) != 1 || len(result.Rows[0]) != 4 {
		return false, errors.New("the tick returned no row")
	}
	row := result.Rows[0]
	high, err := strconv.ParseInt(string(row[0]), 10, 64)
	if err != nil {
		return false, err
	}
	if string(row[1]) != sess.oid {
		return false, noOutbox(src.req.Outbox)
	}
	retries := string(row[2]) == "t"
	return high == sess.at.done.low && !retries && stillInFlight(sess.at.done, mark{snap: string(row[3])}), nil
}

// stillInFlight says whether every transaction in flight at then is in flight now.
func stillInFlight(then, now mark) bool {
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
