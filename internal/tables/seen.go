package tables

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/seqset"
)

// Options of a store that claims need.
type Options struct {
	Margin, Sweep time.Duration
	// LookAgain is how soon a claim sees a job that committed late, behind others that were claimed.
	LookAgain time.Duration
	// Ended is how soon a claim that finds enough sees that a lease has ended.
	Ended time.Duration
	// Room is how many bytes of payload one statement may return, about; 0: any.
	Room int
	// Heads: a claim also looks at the first job of each key of Round.Keys, so that those that wait behind it are skipped.
	Heads bool
	// Position: one transaction at a time writes, so that messages committed before another have a lower number. A reader has a Cursor.
	Position bool
	// Turns: claims of a group that is limited take turns with each other. Where false they take turns with all claims of the queue.
	Turns bool
	// Ready: the dialect is a Waker, which knows where the jobs are that may be had. A claim is one Round without Ranges.
	Ready bool
	// Returns: "end_jobs" locks the leases as "hold_leases" does, and returns them.
	Returns bool
}

// Seen is a process's knowledge of a queue's groups. Safe for concurrent use.
type Seen struct {
	lifo   bool
	mu     sync.Mutex
	groups map[string]*groupSeen
	free   bool       // claims need not take turns with all others
	limits bool       // the queue has policies of groups
	inTurn bool       // the last group was limited: then a group of which nothing is known is taken for limited
	forgot time.Time  // when holds and starts that are over were looked for
	owed   *time.Time // leases have ended, later than this, which a claim found that had jobs already
}

// NewSeen knows nothing yet.
func NewSeen(lifo bool) *Seen { return &Seen{lifo: lifo, groups: map[string]*groupSeen{}} }

// limit reports whether the next claim takes turns with all others.
func (s *Seen) limit(limited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = !limited
}

// group notes what a round has seen of the policies of a group, and whether another round must take part in them: this one has taken nothing then.
func (s *Seen) group(r *Round) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits, s.inTurn, r.group.inTurn = r.HasPolicies, r.InTurn, r.InTurn
	return r.HasPolicies && !r.Policies || r.InTurn && !r.Turned && !r.Alone
}

// limited notes that the queue has policies of groups, or none.
func (s *Seen) limited(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = is
}

// forgets: it is time to look for what does not limit any more.
func (s *Seen) forgets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := time.Since(s.forgot) > time.Minute
	if due {
		s.forgot = time.Now()
	}
	return due
}

// sideBySide: claims need not take turns with all others, as far as is known.
func (s *Seen) sideBySide() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// owe leaves leases that have ended to the next claim.
func (s *Seen) owe(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed = &since
}

// pay ends the leases that a claim before has left.
func (s *Seen) pay(expire func(since time.Time) error) error {
	s.mu.Lock()
	since := s.owed
	s.owed = nil
	s.mu.Unlock()
	if since == nil {
		return nil
	}
	return expire(*since)
}

// LIFO is the order of the queue.
func (s *Seen) LIFO() bool { return s.lifo }

// groupSeen is this process's knowledge of a group: of each priority the times, in microseconds, between which no job was
// left that was never claimed. A claim passes over them, so that it does not walk over rows that are deleted and not
// cleaned up yet, for example because of an open snapshot. It is not a guarantee: jobs that commit late are found by
// looking again.
type groupSeen struct {
	taken         [priorities]seqset.Set
	newest        [priorities][lately]int64 // of the jobs that this process took, the latest first
	asked         time.Time                 // when it was asked for leases that have ended
	near, all     time.Time                 // when the margin was looked at again, and everything
	found         bool                      // the last claim found all that it wanted
	checked       time.Time                 // leases that end before this were seen to have ended
	tried         time.Time                 // of those due before this none must be tried again
	blocked       int                       // how many jobs that wait for others of their keys were in the way, when everything was looked at again
	contended     int                       // how many jobs other claims were taking in front of those that this process got, lately
	keys          map[string]passed         // of jobs that wait and are passed over
	passes        int                       // how often one was passed over
	inTurn        bool                      // its claims take turns, because it is limited
	usual         time.Duration             // how long a claim takes
	sweeping      time.Duration             // how much longer it took to look at everything again
	now, measured time.Time                 // the database's clock, and this one's
}

// passed is the last job of a key that was passed over. When the key's first is behind it, none of these is left.
type passed struct {
	ts time.Time
	id int64
	at int // of the group's passes
}

// before: they all come before a job of the key.
func (p passed) before(c Claimed) bool {
	return cmp.Or(p.ts.Compare(c.TS), cmp.Compare(p.id, c.Job.ID)) < 0
}

const (
	// mostKeys are those that a claim looks up; jobs that wait for others are looked at each time.
	mostKeys = 500
	// endedMargin: a lease is noted well before it ends, so it commits late by no more than that.
	endedMargin = time.Second
	priorities  = penstock.MaxPriority - penstock.MinPriority + 1
	// gaps is how many ranges are kept of a priority.
	gaps = 64
	// mostLeft jobs that other claims were taking are looked at by themselves the next time.
	mostLeft = gaps / 4
	// lately is how many of the newest jobs that it took a process walks over each time. So it finds at once those that commit a little after
	// them, with an earlier time. Otherwise a fifth of all jobs was late, with 100 a second and 2 ms for a commit.
	lately = 4
	// longestLag is for how long it walks over those that others took, if it took fewer.
	longestLag = 250 * time.Millisecond
	noTime     = int64(0)
	farFuture  = int64(253402300799000000) // the end of the year 9999
)

// Round begins one, which looks at window jobs of each range at least: at one more than may be taken, behind which nothing is left.
func (s *Seen) Round(c driver.Claim, o Options, window int) *Round {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[c.Group]
	if g == nil {
		if len(s.groups) > 1000 {
			clear(s.groups)
		}
		g = &groupSeen{inTurn: s.inTurn}
		s.groups[c.Group] = g
	}
	at, pause, blocked := time.Now(), o.LookAgain, g.blocked
	if !g.found && g.contended == 0 { // jobs that other claims were taking are not late
		pause /= 10
	}
	r := &Round{Jobs: c.Jobs, Room: cmp.Or(o.Room, math.MaxInt), Checked: g.checked.UTC(), Tried: g.tried.UTC(), Age: g.now.Add(at.Sub(g.measured)).Sub(g.checked),
		Alone: !s.free || g.inTurn && !o.Turns, Policies: s.limits, Turned: g.inTurn && o.Turns, seen: s, group: g, begun: at, margin: o.Margin, lag: min(max(o.LookAgain, 0), longestLag), cut: farFuture, heads: o.Heads}
	switch {
	case at.Sub(g.all) > max(o.Sweep, sweepPart*g.sweeping):
		r.cut, g.all, g.near, r.Checked, r.Tried, r.Age = noTime, at, at, time.Time{}, time.Time{}, 0
	case at.Sub(g.near) > pause:
		r.cut, g.near = g.now.Add(at.Sub(g.measured)-o.Margin).UnixMicro(), at
	case r.heads:
		blocked = 0 // they are passed over
	}
	if r.cut != farFuture {
		r.known = g.taken
	}
	if r.Checks = !g.found || r.cut == noTime || at.Sub(g.asked) >= o.Ended; r.Checks {
		g.asked = at
	}
	r.Keys, r.passes = slices.AppendSeq([]string{}, maps.Keys(g.keys)), g.passes
	for i, taken := range g.taken {
		from := noTime
		for _, t := range upTo(taken, r.cut) {
			r.add(i, from, t[0]-1)
			from = t[1]
		}
		r.add(i, from, farFuture)
	}
	r.Window = min(max(window, c.Jobs+blocked+g.contended+min(g.contended, 32)+1), most)
	r.Last = r.Window == most
	if !r.Alone && !r.Turned { // else none is first, and max_running may leave room for fewer
		r.Spare = min(g.contended, mostSpare)
	}
	return r
}

func (r *Round) add(i int, after, upto int64) {
	if upto > after {
		r.Ranges = append(r.Ranges, Range{int16(i + penstock.MinPriority), time.UnixMicro(after).UTC(), time.UnixMicro(upto).UTC()})
	}
}

// Note remembers the jobs that were found. full: the claim has all that it wanted.
func (r *Round) Note(full bool) {
	r.seen.mu.Lock()
	defer r.seen.mu.Unlock()
	g := r.group
	g.now, g.measured, g.found = r.Now, time.Now(), full
	if r.Checks && !r.Expired {
		g.checked = r.Now.Add(-endedMargin)
	}
	if took := time.Since(r.begun); r.cut == noTime {
		g.sweeping, g.keys = max(took-g.usual, 0), nil
	} else {
		g.usual += (took - g.usual) / 16
	}
	g.forget(r)
	found := map[int16][]Claimed{}
	if !r.heads || r.cut != farFuture {
		g.blocked = 0
	}
	waits, fresh, tried, left := 0, 0, 0, false
	others, contended := 0, g.contended-1-g.contended/8
	end := Range{Priority: penstock.MaxPriority + 1} // the last that was looked at, if there may be more behind it
	for _, p := range r.Page {
		switch {
		case p.Waits:
			waits++
		case p.Job.Lease == 0:
			others++
		}
		if p.Job.Lease != 0 {
			contended = max(contended, others)
		}
		if (p.Job.Lease != 0 || !full) && (!r.heads || r.cut != farFuture) {
			g.blocked = waits
		}
		if p.Head { // nothing is known of its place
			continue
		}
		if p.Fresh {
			if fresh++; r.Whole && fresh == r.Window {
				end = Range{int16(p.Job.Priority), p.TS, p.TS}
			}
			found[int16(p.Job.Priority)] = append(found[int16(p.Job.Priority)], p)
			continue
		}
		tried, left = tried+1, left || p.Job.Lease == 0
	}
	if len(r.Page) > 0 && !slices.ContainsFunc(r.Page, func(p Claimed) bool { return p.Job.Lease != 0 }) && !r.Page[0].Waits && !r.Closed {
		contended = min(g.contended+max(r.Jobs, 8), others) // all that it could have had, perhaps
	}
	g.contended = max(contended, 0)
	switch {
	case !left && tried < r.Window:
		g.tried = r.Now.Add(-r.margin)
	case r.cut == noTime:
		g.tried = time.Time{}
	}
	for _, in := range r.Ranges {
		if in.Priority <= end.Priority {
			g.note(r, in, found[in.Priority], end)
		}
	}
}

// note remembers the finds of a round in a range. end is the last job that it looked at, if there may be more behind it.
func (g *groupSeen) note(r *Round, in Range, found []Claimed, end Range) {
	i := int(in.Priority) - penstock.MinPriority
	found = slices.DeleteFunc(slices.Clone(found), func(p Claimed) bool { return !in.Has(p) })
	var last int64
	full := len(found) == r.Window // there may be more of them, also of the last one's microsecond
	if full {
		last = found[r.Window-1].TS.UnixMicro()
	}
	if in.Priority == end.Priority {
		full, last = true, end.After.UnixMicro()
	}
	var left []int64
	late := false // a job was thought to be taken, because it committed late. Those around it may have committed with it
	for _, p := range found {
		ts := p.TS.UnixMicro()
		late = late || !p.Waits && r.known[i].Has(ts)
		if p.Job.Lease != 0 {
			g.took(i, ts)
			continue
		}
		if !p.Waits && (full || len(left) >= mostLeft) { // a claim may have it: no claim needs to know the jobs between it and those behind it
			full, last = true, ts
			break
		}
		if !p.Waits || !r.heads || !g.pass(p) {
			left = append(left, ts)
		}
	}
	from, upto := in.After.UnixMicro()+1, min(in.UpTo.UnixMicro(), r.Now.UnixMicro(), max(r.Now.Add(-r.lag).UnixMicro(), g.newest[i][lately-1]))
	taken := &g.taken[i]
	switch {
	case full && r.seen.lifo:
		if from = max(from, last+1); late {
			*taken = slices.Concat(upTo(*taken, r.cut), after(*taken, upto))
		}
	case full:
		if upto = min(upto, last-1); late {
			*taken = upTo(*taken, upto)
		}
	}
	if at := max(from, r.cut+1); at <= upto { // the part that was looked at again; the knowledge of the rest stays
		*taken = slices.Concat(upTo(*taken, at-1), after(*taken, upto))
	}
	*taken = longest(taken.Union(without(from, upto, left)))
}

// took notes that a job was taken.
func (g *groupSeen) took(i int, ts int64) {
	newest := &g.newest[i]
	if oldest := &newest[lately-1]; ts > *oldest {
		*oldest = ts
		slices.SortFunc(newest[:], func(a, b int64) int { return cmp.Compare(b, a) })
	}
}

// pass remembers a job that waits, and reports whether it may be passed over: its key's first is looked up.
func (g *groupSeen) pass(p Claimed) bool {
	last, known := g.keys[p.Job.Key]
	if !known && len(g.keys) == mostKeys {
		return false
	}
	if g.keys == nil {
		g.keys = map[string]passed{}
	}
	if g.passes++; !known || last.before(p) {
		last = passed{ts: p.TS, id: p.Job.ID}
	}
	last.at = g.passes
	g.keys[p.Job.Key] = last
	return true
}

// forget forgets the keys of which the round has seen that no job is left that was passed over, unless one was since it began.
func (g *groupSeen) forget(r *Round) {
	done := func(key string, is func(last passed) bool) {
		if last, known := g.keys[key]; known && last.at <= r.passes && is(last) {
			delete(g.keys, key)
		}
	}
	for key, first := range r.Firsts {
		done(key, func(last passed) bool { return first.Job.ID == 0 || last.before(first) })
	}
	for _, p := range r.Page {
		if p.Job.Lease != 0 && (p.Fresh || p.Head) { // it was the first. Those that were tried before may not be
			done(p.Job.Key, func(last passed) bool { return p.Job.ID == last.id || last.before(p) })
		}
	}
}

// without is a range without some of its numbers.
func without(from, upto int64, left []int64) (s seqset.Set) {
	slices.Sort(left)
	for _, ts := range append(left, upto+1) {
		if ts > from && from <= upto {
			s = append(s, seqset.Range{from, min(ts-1, upto)})
		}
		from = max(from, ts+1)
	}
	return s
}

func upTo(s seqset.Set, last int64) (kept seqset.Set) {
	for _, r := range s {
		if r[0] <= last {
			kept = append(kept, seqset.Range{r[0], min(r[1], last)})
		}
	}
	return kept
}

func after(s seqset.Set, last int64) (kept seqset.Set) {
	for _, r := range s {
		if r[1] > last {
			kept = append(kept, seqset.Range{max(r[0], last+1), r[1]})
		}
	}
	return kept
}

// longest forgets the shortest ranges, if there are too many.
func longest(s seqset.Set) seqset.Set {
	if len(s) <= gaps {
		return s
	}
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b seqset.Range) int { return cmp.Compare(b[1]-b[0], a[1]-a[0]) })
	s = s[:gaps/2]
	slices.SortFunc(s, func(a, b seqset.Range) int { return cmp.Compare(a[0], b[0]) })
	return s
}
