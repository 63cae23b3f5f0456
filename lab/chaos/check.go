package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// evidence is everything that the checker judges by.
type evidence struct {
	journal   map[string]*entry
	facts     map[string]message // the business table, by id
	arrivals  map[string][]arrival
	dead      map[string][]deadLetter // whatever was one at some time
	runs      []*jobRun               // by their begin
	running   map[string]int64        // the most leases of each group's jobs that the database had at a time
	losses    []loss                  // of leases of jobs
	cancelled map[string]cancellation // jobs, by their message's id
	samples   map[string][]sample
	events    []*event
	end       time.Time
}

// deadLetter is one as the operator sees it.
type deadLetter struct {
	ID     string
	Reason string // why the last attempt failed
	At     time.Time
}

// sample is the status of a subscription: at least so at From, and at most
// so at To.
type sample struct {
	From, To                        time.Time
	Epoch, Settled, Backlog, Parked int64
	Holder                          string
}

// Kinds of violation, as the output names them.
const (
	lost          = "lost"                   // committed, and not delivered
	phantom       = "phantom"                // delivered, never committed
	outOfOrder    = "out_of_order"           // of one key, among first deliveries
	unexplained   = "unexplained_duplicates" // delivered twice while nothing was wrong
	misrouted     = "misrouted"              // delivered past the filter
	corrupted     = "corrupted"              // delivered, but with other content than was written
	wronglyDead   = "wrongly_dead"           // a dead letter that the sink did not refuse, or without a reason
	epochBack     = "epoch_went_back"
	settledBack   = "settled_went_back"
	miscounted    = "settled_miscounted" // not each message exactly once
	databaseLost  = "database_lost"      // acknowledged by PostgreSQL, and not there
	databaseExtra = "database_extra"     // rolled back, and there
	keyGap        = "business_key_gap"   // the business's own counter has a gap
	idChanged     = "id_changed"         // of one message
	idAgain       = "id_given_again"     // to another message: a consumer that drops duplicates drops that
)

type violation struct {
	Kind, Route, ID, Text string
}

// verdict is the finding of the checker, summed over the subscriptions.
type verdict struct {
	Committed  int         `json:"committed"`
	Delivered  int         `json:"delivered"`
	Duplicates int         `json:"duplicates"`
	Dead       int         `json:"dead"`
	RolledBack int         `json:"rolled_back"`
	Takeovers  int         `json:"takeovers"`
	Jobs       jobCounts   `json:"jobs"`
	Violations []violation `json:"-"`
}

func (v *verdict) found(kind, route, id, format string, args ...any) {
	v.Violations = append(v.Violations, violation{kind, route, id, fmt.Sprintf(format, args...)})
}

// check compares commits with arrivals. At the end nothing is refused any more and
// the operator has sent every dead letter back. So a message that is not delivered is lost wherever
// it may be.
func check(e *evidence) *verdict {
	v := &verdict{}
	e.database(v)
	for _, r := range routes {
		e.route(v, r)
		e.status(v, r)
	}
	e.jobs(v)
	return v
}

// database checks the harness's own ground: PostgreSQL's promises to the
// producers.
func (e *evidence) database(v *verdict) {
	for id, w := range e.journal {
		_, there := e.facts[id]
		switch {
		case w.Outcome == committed && !there && !e.forgotten(id):
			v.found(databaseLost, "", id, "its transaction was acknowledged, but its business row is not there")
		case w.Outcome == rolledBack && there:
			v.found(databaseExtra, "", id, "its transaction was rolled back, but its business row is there")
		}
		if !there {
			v.RolledBack++
		}
	}
	counters := map[string][]int64{}
	for _, f := range e.facts {
		if f.Key != "" {
			counters[f.Key] = append(counters[f.Key], f.N)
		}
	}
	for key, numbers := range counters {
		slices.Sort(numbers)
		for i, n := range numbers {
			if n != int64(i)+1 {
				v.found(keyGap, "", "", "key %s: the business table has number %d at place %d", key, n, i+1)
				break
			}
		}
	}
}

// lostWAL reports whether PostgreSQL may have forgotten something that it did
// between two moments.
func (e *evidence) lostWAL(from, to time.Time) bool {
	return slices.ContainsFunc(e.events, func(x *event) bool {
		return x.Name == walLost && x.strikes(from.Add(-slack), to.Add(slack))
	})
}

// forgotten reports whether a message may have been committed and have gone with
// lost WAL.
func (e *evidence) forgotten(id string) bool {
	w, known := e.journal[id]
	return known && w.Outcome != rolledBack && e.lostWAL(w.Written, w.Ended)
}

// route checks one subscription's deliveries.
func (e *evidence) route(v *verdict, r route) {
	dead := map[string]bool{}
	for _, d := range e.dead[r.name] {
		dead[d.ID] = true
		v.Dead++
		fact, there := e.facts[d.ID]
		switch {
		case !there && e.forgotten(d.ID):
		case !there:
			v.found(phantom, r.name, d.ID, "it is a dead letter, but was never committed")
		case d.Reason == "":
			v.found(wronglyDead, r.name, d.ID, "it is a dead letter without a reason")
		case !r.refusable(fact.Topic):
			v.found(wronglyDead, r.name, d.ID, "it is a dead letter, but the sink did not refuse it: %s", d.Reason)
		}
	}

	inbox := map[string]string{}                              // which message has an id
	first, last := map[string]arrival{}, map[string]arrival{} // of each message
	latest := map[string]int64{}                              // number of each key
	before := map[string]string{}                             // and the message that has it
	for _, a := range e.arrivals[r.name] {
		id := a.Payload.ID
		if other, seen := inbox[a.ID]; seen && other != id {
			v.found(idAgain, r.name, id, "the id %s that it was delivered with had been given to %s", a.ID, other)
			continue
		}
		inbox[a.ID] = id
		fact, there := e.facts[id]
		if !there {
			if !e.forgotten(id) {
				v.found(phantom, r.name, id, "it was delivered, but never committed")
			}
			continue
		}
		if !r.chooses(fact.Topic) {
			v.found(misrouted, r.name, id, "the filter does not choose its topic %s", fact.Topic)
		}
		if a.Payload != fact || a.Key != fact.Key || a.Topic != fact.Topic && r.broker == "nats" || a.Trace != id || fact.OwnID && a.ID != id {
			v.found(corrupted, r.name, id, "written as %+v, delivered as %+v", fact, a)
		}
		earlier, again := last[id]
		last[id] = a
		if again {
			v.Duplicates++
			if a.ID != earlier.ID {
				v.found(idChanged, r.name, id, "it was delivered as %s and as %s", earlier.ID, a.ID)
			}
			if !dead[id] && e.unexplained(r.name, first[id], earlier, a) {
				v.found(unexplained, r.name, id, "it was delivered twice, and nothing happened in between")
			}
			continue
		}
		first[id] = a
		v.Delivered++
		if fact.Key == "" || dead[id] {
			continue
		}
		if n := latest[fact.Key]; fact.N <= n {
			v.found(outOfOrder, r.name, id, "number %d of key %s was delivered after number %d (message %s)", fact.N, fact.Key, n, before[fact.Key])
			continue
		}
		latest[fact.Key], before[fact.Key] = fact.N, id
	}

	for id, fact := range e.facts {
		if !r.chooses(fact.Topic) {
			continue
		}
		v.Committed++
		if _, arrived := last[id]; !arrived {
			v.found(lost, r.name, id, "it was committed and not delivered%s", map[bool]string{true: ", though its dead letter was retried"}[dead[id]])
		}
	}
}

// slack is by how much the times of an arrival and of an event may be apart.
const slack = time.Second

// unexplained reports whether a message was delivered again without need. That
// may be only if something happened between its being written and the moment
// when its settlement was durable. What RabbitMQ hands out once more after a crash
// is a delivery too, hence the first one and not the one before.
func (e *evidence) unexplained(route string, first, before, again arrival) bool {
	from, to := e.sentSince(first).Add(-slack), e.settledBy(route, before.At)
	if again.At.Before(to) {
		to = again.At
	}
	to = to.Add(slack)
	return !slices.ContainsFunc(e.events, func(x *event) bool {
		return x.concerns(route) && x.strikes(from, to) && e.held(route, x)
	})
}

// sentSince is the earliest time at which the first copy of a message can have been
// sent. It is not when that arrived: a broker that was down, or a consumer that did not
// get a processor, may have had it for a while.
func (e *evidence) sentSince(first arrival) time.Time {
	if w, known := e.journal[first.Payload.ID]; known && w.Written.Before(first.At) {
		return w.Written
	}
	return first.At
}

// held reports whether the relay that an event strikes may have held the
// subscription then. It did not if no sample from the last one before to the first
// one after says so.
func (e *evidence) held(route string, x *event) bool {
	all := e.samples[route]
	if x.Holder == "" || len(all) == 0 {
		return true
	}
	first, last := 0, len(all)-1
	for i, s := range all {
		if s.To.Before(x.From) {
			first = i
		}
		if !x.To.IsZero() && s.From.After(x.To) {
			last = i
			break
		}
	}
	return slices.ContainsFunc(all[first:last+1], func(s sample) bool {
		return slices.Contains(strings.Split(s.Holder, ", "), x.Holder) // of a subscription that is shared they are several
	})
}

// settledBy is a time at which everything that was delivered until t was settled for sure. The
// cursor moves in order, so it has passed all that was there at one sample when it has moved by the
// backlog. Parked messages are not behind the cursor.
func (e *evidence) settledBy(route string, t time.Time) time.Time {
	all := e.samples[route]
	i := slices.IndexFunc(all, func(s sample) bool { return !s.From.Before(t) })
	if i < 0 {
		return e.end
	}
	target := all[i].Settled + all[i].Backlog
	for _, s := range all[i:] {
		if s.Settled >= target && s.Parked == 0 {
			return s.To
		}
	}
	return e.end
}

// status checks that a subscription's epoch and its count of settled messages never went back. It also
// checks that the count is right in the end, and counts how often the lease changed hands.
func (e *evidence) status(v *verdict, r route) {
	var last sample
	for i, s := range e.samples[r.name] {
		if i > 0 && e.lostWAL(last.From, s.To) {
			last = s // and the cursor with it
			continue
		}
		if i > 0 && s.Epoch < last.Epoch {
			v.found(epochBack, r.name, "", "the epoch went from %d to %d", last.Epoch, s.Epoch)
		}
		if i > 0 && s.Settled < last.Settled {
			v.found(settledBack, r.name, "", "the count of settled messages went from %d to %d", last.Settled, s.Settled)
		}
		if i > 0 && s.Epoch > last.Epoch {
			v.Takeovers += int(s.Epoch - last.Epoch)
		}
		last = s
	}
	// Where nothing is refused nothing is parked or dies, and each message of the
	// outbox is settled once, whatever the filter says.
	refuses := slices.ContainsFunc(poisoned, r.refusable)
	if n := int64(len(e.facts)); len(e.samples[r.name]) > 0 && !refuses && last.Settled != n {
		v.found(miscounted, r.name, "", "%d messages are settled of %d that were committed", last.Settled, n)
	}
}
