package demo

import (
	"fmt"
	"time"
)

// Departure is a flight that the airline has committed: the ground truth.
type Departure struct {
	Flight  int64
	Tailnum string
	// Turn counts the aircraft's flights up to this one, under the aircraft's row lock; 0 without a
	// tail number.
	Turn int64
}

// Arrival is a message as the consumer read it from the broker.
type Arrival struct {
	Departure
	// Key is the key that came with the message, separate from the payload.
	Key string
}

// Checked is the result of comparing the arrivals with the committed flights.
type Checked struct {
	// Published counts committed departures, Delivered those of them that
	// arrived at least once, Lost the others.
	Published, Delivered, Lost int
	// Phantom counts arrivals that were not committed: rolled back, altered or made up.
	Phantom int
	// Duplicates counts arrivals after the first of their flight. Delivery is at least once, so
	// they are not a failure.
	Duplicates int
	// OutOfOrder counts first deliveries that came after a later flight of the
	// same aircraft.
	OutOfOrder int
	// Examples describes the first few findings.
	Examples []string
}

// OK reports whether the delivery kept its promises.
func (c *Checked) OK() bool { return c.Lost == 0 && c.Phantom == 0 && c.OutOfOrder == 0 }

const maxExamples = 5

func (c *Checked) example(format string, args ...any) {
	if len(c.Examples) < maxExamples {
		c.Examples = append(c.Examples, fmt.Sprintf(format, args...))
	}
}

// Check compares arrivals, in the order in which the consumer read them, with
// the committed ones.
func Check(committed []Departure, arrivals []Arrival) Checked {
	c := Checked{Published: len(committed)}
	truth := make(map[int64]Departure, len(committed))
	for _, d := range committed {
		truth[d.Flight] = d
	}
	seen := make(map[int64]bool, len(committed))
	latest := make(map[string]int64) // by aircraft: the latest turn delivered
	for _, a := range arrivals {
		d, ok := truth[a.Flight]
		switch {
		case !ok:
			c.Phantom++
			c.example("phantom: flight %d of aircraft %q arrived but was never committed", a.Flight, a.Tailnum)
			continue
		case a.Departure != d || a.Key != d.Tailnum:
			c.Phantom++
			c.example("phantom: flight %d arrived as %+v with key %q, committed was %+v", a.Flight, a.Departure, a.Key, d)
			continue
		case seen[a.Flight]:
			c.Duplicates++
			continue
		}
		seen[a.Flight] = true
		if d.Tailnum == "" {
			continue // unkeyed: no order was promised
		}
		if d.Turn < latest[d.Tailnum] {
			c.OutOfOrder++
			c.example("out of order: flight %d, turn %d of aircraft %s, arrived after turn %d", d.Flight, d.Turn, d.Tailnum, latest[d.Tailnum])
			continue
		}
		latest[d.Tailnum] = d.Turn
	}
	c.Delivered = len(seen)
	c.Lost = c.Published - c.Delivered
	if c.Lost > 0 {
		for _, d := range committed {
			if !seen[d.Flight] {
				c.example("lost: flight %d, turn %d of aircraft %q, was committed and never arrived", d.Flight, d.Turn, d.Tailnum)
			}
		}
	}
	return c
}

// Progress of a run.
type Progress struct {
	Total, Committed, RolledBack, Delivered int64
	Elapsed                                 time.Duration
}

// Result of a run.
type Result struct {
	Checked
	// RolledBack transactions published and were rolled back.
	RolledBack int
	// Unread is true for a sink that cannot be read back: Delivered counts the messages that
	// the sink confirmed, and order and losses are unknown.
	Unread bool
	// GaveUp is true if deliveries stopped for longer than Patience.
	GaveUp bool
	// Elapsed is the time from the first transaction to the last message read, Writing the time to the
	// last commit.
	Elapsed, Writing time.Duration
	// Rate is the Config's. CommitsPerSecond is how many empty transactions of as many producers the database commits; it is measured before the
	// first flight.
	Rate, CommitsPerSecond float64
	// Kept names the objects that Keep has left.
	Kept []string
}

// PerSecond is how many messages per second were delivered and read.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Delivered) / r.Elapsed.Seconds()
}

// WrittenPerSecond is how many of the business's transactions were committed per second.
func (r *Result) WrittenPerSecond() float64 {
	if r.Writing <= 0 {
		return 0
	}
	return float64(r.Published) / r.Writing.Seconds()
}

// BoundedBy is the limit of the rate.
func (r *Result) BoundedBy() Bound {
	switch {
	case r.Elapsed > r.Writing*5/4:
		return BoundByDelivery
	case r.Rate > 0 && float64(r.Published+r.RolledBack) > 0.9*r.Rate*r.Writing.Seconds():
		return BoundByRate
	case r.WrittenPerSecond() > r.CommitsPerSecond/2:
		return BoundByCommits
	}
	return BoundByStatements
}

// Bound is a limit of a rate.
type Bound string

const (
	BoundByDelivery   Bound = "delivery"   // the relay and the broker were behind when the last transaction had committed
	BoundByRate       Bound = "rate"       // that was requested
	BoundByCommits    Bound = "commits"    // a transaction takes less than two commits
	BoundByStatements Bound = "statements" // of the transactions
)
