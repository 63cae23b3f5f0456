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
	// Unread is true for a sink that cannot be read back: Delivered counts what
	// the sink confirmed, and order and losses are unknown.
	Unread bool
	// GaveUp is true if deliveries stopped and patience ended.
	GaveUp bool
	// Elapsed from the first transaction to the last message read, Writing to
	// the last commit.
	Elapsed, Writing time.Duration
	// Rate is the Config's, CommitsPerSecond what the database takes from as many producers of transactions that do nothing else, before the first.
	Rate, CommitsPerSecond float64
	// Kept names what Keep left behind.
	Kept []string
}

// PerSecond is how many messages went all the way, per second.
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

// BoundedBy is what the rate waited for.
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

// Bound is what a rate waited for.
type Bound string

const (
	BoundByDelivery   Bound = "delivery"   // the relay and the broker were behind when the last transaction had committed
	BoundByRate       Bound = "rate"       // that was asked for
	BoundByCommits    Bound = "commits"    // a transaction takes less than two commits
	BoundByStatements Bound = "statements" // of the transactions
)
