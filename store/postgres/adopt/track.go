package adopt

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// position is a place that the head has reached, and when.
type position struct {
	n    uint64 // grows with each position: of two, the lower is the earlier place
	at   time.Time
	rows int64
	place
}

// track is where the reader is and was. A row that commits late is behind the head, at a place that
// the head has passed. How far back depends on when its transaction chose the place, and track
// knows where the head was then. Not safe for concurrent use.
type track struct {
	positions []position // by time; the last is the head
	margin    time.Duration
	rows      int64
	full      bool                // the last page: rows become visible further ahead, and there is no slack
	far       bool                // much further, by the times of the rows: those of a transaction of now stand ahead of the head
	reach     time.Duration       // how far the slack goes back
	open      map[uint64]position // transactions in flight, and a place before all they wrote
	next      uint64              // the last snapshot lists none from this one on, in flight or not
	own       []ownTransaction    // this reader's, in the order of their numbers
}

// ownTransaction is a transaction in which the reader settled messages or renewed its lease. A transaction with a higher number got it later, so
// its rows stand behind before.
type ownTransaction struct {
	xid    uint64
	before position
	far    bool // as track.far was
}

// The slack is how far a reader that has caught up always looks back, because rows may become
// visible in another order than that of their places. Where the places are the times of clocks that
// differ, it reaches as far as rows were found to be late.
const (
	slackTime = 100 * time.Millisecond
	maxSlack  = 10 * time.Second
	slackRows = 4096
)

func newTrack(start place, margin time.Duration, now time.Time) *track {
	return &track{positions: []position{{at: now, place: start}}, margin: margin, reach: slackTime, open: map[uint64]position{}}
}

func (t *track) head() position { return t.positions[len(t.positions)-1] }

// moved notes that the head is now at p, rows further.
func (t *track) moved(p place, rows int, now time.Time) {
	t.rows += int64(rows)
	m := position{n: t.head().n + 1, at: now, rows: t.rows, place: p}
	// Positions need not be dense: with fewer, a little more is looked at again.
	if k := len(t.positions); k >= 2 && now.Sub(t.positions[k-2].at) < t.margin/4096 {
		t.positions[k-1] = m
	} else {
		t.positions = append(t.positions, m)
	}
	old := 0
	for old+1 < len(t.positions) && now.Sub(t.positions[old+1].at) > t.margin {
		old++
	}
	if old > 0 {
		t.positions = slices.Delete(t.positions, 0, old)
	}
}

// back is where the head was that long ago, or at the earliest that is known.
func (t *track) back(d time.Duration, now time.Time) position {
	i, found := slices.BinarySearchFunc(t.positions, now.Add(-d), func(m position, at time.Time) int { return m.at.Compare(at) })
	if found {
		return t.positions[i]
	}
	return t.positions[max(0, i-1)]
}

// low is the low-water mark: where the head was a margin ago.
func (t *track) low(now time.Time) position { return t.back(t.margin, now) }

// slack is how far back to look when nothing hints at a late row.
func (t *track) slack(now time.Time) position {
	m := t.head()
	for i := len(t.positions) - 2; i >= 0 && !t.full; i-- {
		if m.at.Before(now.Add(-t.reach)) || t.rows-t.positions[i].rows > slackRows {
			break
		}
		m = t.positions[i]
	}
	return m
}

// foundLate notes whether rows were found that were late by up to span.
func (t *track) foundLate(span time.Duration) { t.reach = max(t.reach, min(span, maxSlack)) }

// retreat puts the head back to p: a place far ahead of all others was taken for the head, for
// example the time of a clock that is wrong. The rows between are read again.
func (t *track) retreat(p place, now time.Time) {
	m := position{n: t.head().n + 1, at: now, rows: t.rows, place: p}
	t.positions = append(t.positions[:0], m)
	for xid := range t.open {
		t.open[xid] = m
	}
	for i := range t.own {
		t.own[i].before, t.own[i].far = m, false
	}
}

// saw takes the snapshot of a read. It returns the earliest place at which a row may stand that this read shows and the
// read before did not, because its transaction was in flight then.
//
// A snapshot lists the transactions in flight only up to the last one that has ended. Those with higher numbers may be in flight
// as well. So a transaction may have ended that no read has listed, and one that is listed for the first time may be older than
// the read before. Both got their numbers after the reader's own transaction with the next lower one.
func (t *track) saw(snapshot string) (back position, some bool) {
	running, next := inFlight(snapshot)
	if next < t.next { // a server that lacks the last transactions gives their numbers again
		t.own = nil
	}
	ended := func(m position) {
		if !some || m.n < back.n {
			back, some = m, true
		}
	}
	for xid, m := range t.open {
		if running[xid] {
			continue
		}
		delete(t.open, xid)
		if !t.isOwn(xid) {
			ended(m)
		}
	}
	for xid := t.next; t.next > 0 && xid < next; xid++ {
		if !running[xid] && !t.isOwn(xid) { // of all that no read has listed, it may be the oldest
			ended(t.begin(xid))
			break
		}
	}
	for xid := range running {
		if _, known := t.open[xid]; !known {
			t.open[xid] = t.begin(xid)
		}
	}
	t.next = next
	return back, some
}

// begin is a place before all that a transaction wrote, which no list before had.
func (t *track) begin(xid uint64) position {
	i, _ := t.find(xid)
	if i == 0 {
		return t.positions[0]
	}
	o := &t.own[i-1]
	if o.far && t.far && t.head().at.Sub(o.before.at) < maxSlack { // the rows at the head are older than o
		return t.head()
	}
	return o.before
}

// maxOwn bounds the number of the reader's transactions that are remembered.
const maxOwn = 1000

// writes is a transaction of the reader that has no number yet.
func (t *track) writes(now time.Time) ownTransaction {
	return ownTransaction{before: t.slack(now), far: t.far}
}

// wrote notes a transaction of the reader, which wrote no message. It is what writes returned, with its number.
func (t *track) wrote(o ownTransaction) {
	if len(t.own) >= maxOwn {
		t.own = slices.Delete(t.own, 0, maxOwn/2)
	}
	if first := t.positions[0]; o.before.n < first.n { // the head has gone back meanwhile
		o.before, o.far = first, false
	}
	i, _ := t.find(o.xid)
	t.own = slices.Insert(t.own, i, o)
}

// isOwn reports whether a transaction is the reader's.
func (t *track) isOwn(xid uint64) bool {
	_, is := t.find(xid)
	return is
}

func (t *track) find(xid uint64) (int, bool) {
	return slices.BinarySearchFunc(t.own, xid, func(o ownTransaction, xid uint64) int { return cmp.Compare(o.xid, xid) })
}

// inFlight reads a pg_snapshot, "xmin:xmax:xip,…": the transactions in flight, and xmax, from which on none is listed.
func inFlight(snapshot string) (running map[uint64]bool, next uint64) {
	running = map[uint64]bool{}
	parts := strings.SplitN(snapshot, ":", 3)
	if len(parts) < 3 {
		return running, 0
	}
	next, _ = strconv.ParseUint(parts[1], 10, 64)
	for id := range strings.SplitSeq(parts[2], ",") {
		if xid, err := strconv.ParseUint(id, 10, 64); err == nil {
			running[xid] = true
		}
	}
	return running, next
}
