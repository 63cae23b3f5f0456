package adopt

import (
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
	reach     time.Duration       // how far the slack goes back
	own       map[uint64]bool     // settling transactions of this reader
	open      map[uint64]position // transactions in flight, and a place before all they wrote
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
	return &track{positions: []position{{at: now, place: start}}, margin: margin, reach: slackTime, own: map[uint64]bool{}, open: map[uint64]position{}}
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
	for i := len(t.positions) - 2; i >= 0; i-- {
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
}

// saw takes the snapshot of a read that began when the head was at before. It returns the
// earliest place at which a row of a transaction may stand that was in flight at an
// earlier read and has ended since.
//
// A transaction that is met in flight for the first time has got its id since the read before. So
// its rows got their places after all rows that were visible then, except in the moment between
// getting the two. Hence before is some way behind the head.
func (t *track) saw(snapshot string, before position) (back position, some bool) {
	running := inFlight(snapshot)
	for xid, m := range t.open {
		if running[xid] {
			continue
		}
		delete(t.open, xid)
		if t.own[xid] {
			delete(t.own, xid)
			continue
		}
		if !some || m.n < back.n {
			back, some = m, true
		}
	}
	for xid := range running {
		if _, known := t.open[xid]; !known {
			t.open[xid] = before
		}
	}
	return back, some
}

// maxOwn bounds the number of remembered settling transactions that no read has met.
const maxOwn = 1000

// wrote notes a transaction of the reader itself: it wrote no message.
func (t *track) wrote(xid uint64) {
	if len(t.own) >= maxOwn {
		clear(t.own)
	}
	t.own[xid] = true
}

// inFlight lists the transactions of a pg_snapshot: "xmin:xmax:xip,…".
func inFlight(snapshot string) map[uint64]bool {
	running := map[uint64]bool{}
	for id := range strings.SplitSeq(snapshot[strings.LastIndexByte(snapshot, ':')+1:], ",") {
		if xid, err := strconv.ParseUint(id, 10, 64); err == nil {
			running[xid] = true
		}
	}
	return running
}
