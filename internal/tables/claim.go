package tables

import (
	"errors"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/seqset"
)

// Claimed is a row that a claim has looked at, and taken if it has a lease.
type Claimed struct {
	Job   penstock.Job
	TS    time.Time
	Fresh bool // it was never claimed before
	Head  bool // it is the first of a key of Round.Keys, in none of the ranges
	Waits bool // for another of its key
	Late  bool // its deadline has passed: it was taken, and has ended
}

// Range is where jobs of a priority that were never claimed are looked for: after a time, up to another.
type Range struct {
	Priority    int16
	After, UpTo time.Time
}

// Has reports whether a job is in the range.
func (in Range) Has(p Claimed) bool {
	return p.Job.Priority == int(in.Priority) && p.TS.After(in.After) && !p.TS.After(in.UpTo)
}

// Round is one round trip of a claim: where it looks, and its finds.
type Round struct {
	Ranges  []Range
	Keys    []string      // whose first jobs are looked at, wherever they are
	Checks  bool          // it looks for leases that have ended
	Checked time.Time     // those that end before this were seen
	Age     time.Duration // how long ago that is
	Tried   time.Time     // of those due before this none must be tried again
	Window  int           // how many are looked at of each range
	Last    bool          // jobs behind those that wait are also taken
	Jobs    int           // how many may be taken
	Room    int           // for how many bytes of payload, about
	Spare   int           // how many more it may take, of which it withdraws, should others have been first
	Alone   bool          // it takes turns with all other claims of the queue

	Policies bool // it asks for the policies of its group, if the dialect does not always
	Turned   bool // it takes turns with all other claims of its group

	There       bool      // the queue's row is
	Now         time.Time // of the database, before it looked
	Expired     bool      // leases have ended since Checked
	Closed      bool      // nothing may be claimed for now
	Limited     bool      // only a claim that is Alone may take jobs
	Page        []Claimed
	HasPolicies bool // the queue has policies of groups, and only a claim with Policies may take jobs
	InTurn      bool // the group is limited, and only a claim that is Turned or Alone may take jobs
	Started     bool // the group or the queue has a rate, which Start notes
	RoomInGroup int

	// Firsts are the first jobs of those Keys that no lease and no retry holds, whatever their places. One without an ID: there is none. Nil: the dialect does not say.
	Firsts map[string]Claimed

	Whole bool // Window was for all ranges together, in order of priority

	seen   *Seen
	group  *groupSeen
	begun  time.Time
	margin time.Duration
	lag    time.Duration          // jobs with earlier times are thought to have committed
	cut    int64                  // knowledge of later times is looked at again
	known  [priorities]seqset.Set // that knowledge
	heads  bool
	passes int // before it began
}

// Withdraw: the job's lease was taken back.
func (r *Round) Withdraw(seq int64) {
	for i := range r.Page {
		if r.Page[i].Job.ID == seq {
			r.Page[i].Job.Lease = 0
		}
	}
}

// left: there are jobs that might have been taken.
func (r *Round) left() bool {
	return slices.ContainsFunc(r.Page, func(p Claimed) bool { return p.Job.Lease == 0 && !p.Waits })
}

// taken adds the jobs that were taken.
func (r *Round) taken(jobs []penstock.Job) []penstock.Job {
	for _, p := range r.Page {
		if p.Job.Lease != 0 && !p.Late {
			jobs = append(jobs, p.Job)
		}
	}
	return jobs
}

// late: some that were taken have ended.
func (r *Round) late() bool {
	return slices.ContainsFunc(r.Page, func(p Claimed) bool { return p.Late })
}

// most jobs that wait for another of their key are looked at, of each range.
const most = 200_000

// mostSpare is enough where others claim one job at a time. Of more, each claim would find many locked.
const mostSpare = 2

// mostOthers is how many more round trips a claim makes because other claims were taking the jobs that it found.
const mostOthers = 3

// ErrAnew: the queue that this was seen of is not there any more. Another may have its name.
var ErrAnew = errors.New("the queue is another one")

// Claim claims in one round trip. Another one follows if it found jobs that no worker may have and there are more behind them. It also follows
// if it found leases that have ended and no job; expire then ends these leases. If it has jobs, their leases run, and it leaves that to the
// next claim, which begins with it.
func (s *Seen) Claim(c driver.Claim, o Options, ask func(r *Round) error, expire func(since time.Time) error) (jobs []penstock.Job, err error) {
	for o.Ready {
		r := &Round{Jobs: c.Jobs - len(jobs)}
		err := ask(r)
		if err != nil && len(jobs) > 0 {
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		if !r.There {
			return jobs, ErrAnew
		}
		if jobs = r.taken(jobs); !r.late() || len(jobs) == c.Jobs {
			return jobs, nil
		}
	}
	if err := s.pay(expire); err != nil {
		return nil, err
	}
	others := 0
	for window := c.Jobs; ; window = min(4*window, most) {
		r := s.Round(c, o, window)
		window, r.Jobs = r.Window, c.Jobs-len(jobs)
		err := ask(r)
		if err != nil && len(jobs) > 0 { // those of another round trip have leases
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
		if !r.There {
			return jobs, ErrAnew
		}
		if s.limit(r.Limited); r.Limited && !r.Alone {
			continue
		}
		if s.group(r) {
			continue
		}
		before := len(jobs)
		jobs = r.taken(jobs)
		for _, j := range jobs[before:] {
			r.Room -= len(j.Payload)
		}
		r.Note(len(jobs) == c.Jobs)
		switch {
		case r.Expired && len(jobs) > 0:
			s.owe(r.Checked)
		case r.Expired:
			if err := expire(r.Checked); err != nil {
				return nil, err
			}
		}
		if len(jobs) < c.Jobs && (r.Room <= 0 || r.late()) { // as much as one statement may return: the rest by another. Or some were of no use
			continue
		}
		if len(jobs) == 0 && !r.Closed && !r.Checks { // jobs whose leases have ended may be had
			continue
		}
		if len(jobs) == 0 && !r.Closed && r.left() && others < mostOthers { // other claims were taking them, and may leave some
			window = 0 // the number of those that it saw decides
			others++
			continue
		}
		if len(jobs) > 0 || !r.Expired && (r.Closed || len(r.Page) < window || r.Last) { // what expired makes room
			return jobs, nil
		}
	}
}
