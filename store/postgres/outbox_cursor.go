package postgres

import (
	"math"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/seqset"
)

// snapshotBound is a snapshot in its text form (xmin:xmax:xip,…) with the bound that goes
// with it: every row whose xid is not below the snapshot's xmax has seq > low.
//
// The bound needs care. xmax is one more than the latest xid that has *completed*, so a transaction
// that is still running may have an xid >= xmax and a seq drawn long ago. So the sequence's value
// at the time of the snapshot is not a bound. But the relay's own cursor write has an xid, C. Read
// the sequence before C is assigned, and take the snapshot after C has committed. A transaction
// with an xid >= xmax > C drew that xid, and then its seq, later than that reading.
type snapshotBound struct {
	snap string
	low  int64
}

// xip is the snapshot's list of transactions in flight, as an array literal.
func (m snapshotBound) xip() string {
	_, rest, _ := strings.Cut(m.snap, ":")
	_, xip, _ := strings.Cut(rest, ":")
	return "{" + xip + "}"
}

// nothing is a snapshot in which no row is visible: 3 is the first normal xid.
const nothing = "3:3:"

// cursor is how far a subscription has come: everything visible in done, and of
// what became visible up to upto the rows with seq <= pos. upto is empty unless a
// backlog is being paged through.
type cursor struct {
	done   snapshotBound
	upto   snapshotBound
	pos    int64
	system int64 // the cluster whose xids these are
	// ahead are other settled messages, by seq. Messages that the cursor covers may be among them.
	ahead seqset.Set
}

// noSystem is the system of a cursor whose snapshot says nothing: reading begins by seq.
const noSystem = 0

func (c cursor) paging() bool { return c.upto.snap != "" }

// bound and inFlight cover what the cursor has not settled: a row above bound, or
// one of a transaction in flight.
func (c cursor) bound() int64 {
	if c.paging() {
		return min(c.pos, c.upto.low)
	}
	return c.done.low
}

// past leaves out messages settled ahead that are at or below the bound: unless a transaction was
// in flight, none of them can be read again.
func (c cursor) past(s seqset.Set) seqset.Set {
	if len(s) > 0 && c.end().xip() == "{}" {
		return s.After(c.bound())
	}
	return s
}

// multirange is a set as a parameter.
func multirange(s seqset.Set) []byte {
	text := []byte{'{'}
	for i, r := range s {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, r[0], 10)
		text = append(text, ',')
		text = strconv.AppendInt(text, r[1]+1, 10)
		text = append(text, ')')
	}
	return append(text, '}')
}

// readMultirange reads a column, which the server has normalised.
func readMultirange(text string) (s seqset.Set, err error) {
	for text = strings.Trim(text, "{}"); text != ""; {
		var one string
		one, text, _ = strings.Cut(text, ")")
		text = strings.TrimPrefix(text, ",")
		first, end, _ := strings.Cut(strings.TrimPrefix(one, "["), ",")
		var r seqset.Range
		if r[0], err = strconv.ParseInt(first, 10, 64); err != nil {
			return nil, err
		}
		if r[1], err = strconv.ParseInt(end, 10, 64); err != nil {
			return nil, err
		}
		r[1]--
		s = append(s, r)
	}
	return s, nil
}

func (c cursor) end() snapshotBound {
	if c.paging() {
		return c.upto
	}
	return c.done
}

func (c cursor) posOrEnd() int64 {
	if c.paging() {
		return c.pos
	}
	return math.MaxInt64
}
