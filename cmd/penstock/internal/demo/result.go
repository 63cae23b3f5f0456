package demo

import (
	"time"
)

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
