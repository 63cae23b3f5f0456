package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock"
)

// DeadLetterQuery chooses dead letters of one subscription. Every field that is
// not zero narrows the choice.
type DeadLetterQuery struct {
	Outbox, Subscription string
	Seqs                 []int64
	IDs                  []string
	Key                  string
	Topic                string
	// Error is contained in the last error, in the same case.
	Error string
	// DiedBefore and DiedAfter bound when they became dead letters.
	DiedBefore, DiedAfter time.Time
	// AfterSeq leaves out what is up to it, for reading page by page.
	AfterSeq int64
	// Limit is the most that are returned, retried or discarded: the first by
	// Seq. 0 means no limit.
	Limit int
	// Bytes ends what is returned with the one by which payloads have so many; 0 means no limit. PostgreSQL and SQLite keep to it.
	Bytes int
}

// Replay chooses what to deliver again: messages of at least FromSeq and at
// most ToSeq, created at From or later and before To. What is zero does not
// bound.
type Replay struct {
	Outbox, Subscription string
	FromSeq, ToSeq       int64
	From, To             time.Time
}

// Retention is how long settled messages stay in an outbox, for Replay. Zero
// values do not keep anything; age counts from when a message was written. With both, a message goes as soon as one of them
// lets it. Stores free whole pieces of storage, so messages may stay longer.
type Retention struct {
	Age   time.Duration `json:"age_ns,omitempty"`
	Bytes int64         `json:"bytes,omitempty"`
}

// OutboxStatus is one outbox as `penstock status` shows it.
type OutboxStatus struct {
	Outbox string `json:"outbox"`
	// Bytes is what the outbox takes on disk, with indexes.
	Bytes int64 `json:"bytes"`
	// Published counts messages since the outbox was made, with those that were rolled back. 0 where the store does not know.
	Published int64 `json:"published,omitempty"`
	// Segments of the ring; 0 where the store has none.
	Segments      []SegmentStatus      `json:"segments,omitempty"`
	Retention     Retention            `json:"retention,omitzero"`
	Subscriptions []SubscriptionStatus `json:"subscriptions"`
}

// SegmentStatus is one segment of an outbox's ring.
type SegmentStatus struct {
	Slot    int   `json:"slot"`
	Bytes   int64 `json:"bytes"`
	Current bool  `json:"current"`
}

// SubscriptionStatus is one subscription as `penstock status` shows it.
type SubscriptionStatus struct {
	Subscription string `json:"subscription"`
	// Backlog counts committed messages that are not settled.
	Backlog int64 `json:"backlog"`
	// OldestAge is the age of the oldest message in the backlog, 0 without one.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// Settled counts messages settled since the subscription was created.
	Settled int64 `json:"settled"`
	// Rate is messages settled per second over about the last minute.
	Rate float64 `json:"rate_per_second"`
	// DeadLetters kept for this subscription.
	DeadLetters int64 `json:"dead_letters"`
	// Parked counts messages that wait for another attempt, or behind one that
	// does; they are not part of the backlog. ParkedKeys counts their
	// keys (a message without a key is one), and HeldKeys those among them
	// that wait for a person because of Verdict.Hold.
	Parked     int64 `json:"parked"`
	ParkedKeys int64 `json:"parked_keys"`
	HeldKeys   int64 `json:"held_keys"`
	// ParkedAge is the age of the oldest message that is parked, 0 without one; of an adopted table, for how long that has been refused.
	ParkedAge time.Duration `json:"parked_age_ns"`
	// Replaying is true while a replay is not delivered whole.
	Replaying bool `json:"replaying,omitempty"`
	// Holder of the lease, empty if nobody has it now.
	Holder string `json:"holder,omitempty"`
	// HolderSince is when it took the lease.
	HolderSince time.Time `json:"holder_since,omitzero"`
	// Epoch counts how often the lease changed hands.
	Epoch int64 `json:"epoch"`
	// LeaseUntil is when the lease ends unless it is renewed.
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// SinkDown is since when the sink takes nothing, by the clock of the holder, and zero while
	// it takes messages or nobody has the lease. SinkError is why.
	SinkDown  time.Time `json:"sink_down_since,omitzero"`
	SinkError string    `json:"sink_error,omitempty"`
	// AtLeast names the figures, as JSON has them, that were not counted to their end.
	AtLeast []string `json:"at_least,omitempty"`
}

// Cap cuts figures that were counted up to most, and names them in AtLeast. 0 means that all were counted.
func (s *SubscriptionStatus) Cap(most int64) {
	s.AtLeast = capped(most, map[string]*int64{"backlog": &s.Backlog, "dead_letters": &s.DeadLetters, "parked": &s.Parked, "parked_keys": &s.ParkedKeys, "held_keys": &s.HeldKeys})
}

func capped(most int64, figures map[string]*int64) (atLeast []string) {
	for name, n := range figures {
		if most > 0 && *n >= most {
			*n = most
			atLeast = append(atLeast, name)
		}
	}
	slices.Sort(atLeast)
	return atLeast
}

// DeadLetter is a message that was given up, with the reason.
type DeadLetter struct {
	Message penstock.Message
	// Failures are the latest attempts, up to MaxFailures, oldest first.
	Failures []penstock.Failure
	// At is when it became a dead letter, the last time.
	At time.Time
	// Held is true if later messages of its key wait for it to be discarded, or
	// retried and delivered.
	Held bool
}

// Err is why the last attempt failed.
func (d DeadLetter) Err() string { return penstock.LastError(d.Failures) }

// DeadCause is an error of which dead letters died.
type DeadCause struct {
	Error   string    `json:"error"`
	Letters int64     `json:"letters"`
	First   time.Time `json:"first_died_at"`
	Last    time.Time `json:"last_died_at"`
}

// ParkedKey is a key with parked messages, or one parked message by itself.
type ParkedKey struct {
	Key      string    `json:"key"`
	Messages int64     `json:"messages"`
	FirstSeq int64     `json:"first_seq"` // of the message that the others wait for; of a held key the dead letter's
	Attempt  int       `json:"attempt"`   // how many it has had
	Err      string    `json:"error"`
	Since    time.Time `json:"since,omitzero"`      // when its first attempt failed
	Retry    time.Time `json:"next_retry,omitzero"` // zero if held
	Held     bool      `json:"held"`
}

// Validate reports what no store keeps, as a *FieldError.
func (r Retention) Validate() error {
	switch {
	case r.Age != 0 && r.Age < time.Microsecond:
		return &penstock.FieldError{Field: "retention age", Problem: fmt.Sprintf("is %s", r.Age), Hint: "use a microsecond or more, or 0 to keep nothing for its age"}
	case r.Bytes < 0:
		return &penstock.FieldError{Field: "retention bytes", Problem: fmt.Sprintf("is %d", r.Bytes), Hint: "use a positive size, or 0 to keep nothing for its size"}
	}
	return nil
}
