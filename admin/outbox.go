package admin

import (
	"cmp"
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
	// Error is a part of the last error's text. Case matters.
	Error string
	// They became dead letters before DiedBefore and after DiedAfter.
	DiedBefore, DiedAfter time.Time
	// AfterSeq chooses only those with a higher Seq, to read page by page.
	AfterSeq int64
	// Limit is how many are returned, retried or discarded at most: the first by
	// Seq. 0 means no limit.
	Limit int
	// Bytes ends the result after the dead letter with which the payloads reach this size. 0 means no limit. Only
	// PostgreSQL and SQLite apply it.
	Bytes int
}

// Replay chooses messages to deliver again: from FromSeq up to ToSeq, both
// included, created at From or later and before To. A field that is zero does
// not limit the choice.
type Replay struct {
	Outbox, Subscription string
	FromSeq, ToSeq       int64
	From, To             time.Time
	CountOnly            bool // change nothing
}

// Retention is how long settled messages stay in an outbox, for Replay. Zero
// values keep nothing. Age counts from when a message was written. With both, a
// message is removed when it exceeds one of them. Stores free storage in larger
// units, so messages may stay longer.
type Retention struct {
	Age   time.Duration `json:"age_ns,omitempty"`
	Bytes int64         `json:"bytes,omitempty"`
}

// OutboxStatus is one outbox as `penstock status` shows it.
type OutboxStatus struct {
	Outbox string `json:"outbox"`
	// Bytes is the outbox's size on disk, with indexes.
	Bytes int64 `json:"bytes"`
	// Published counts messages since the outbox was created, including those that were rolled back. 0 if the store does not know.
	Published int64 `json:"published,omitempty"`
	// UnreadAge is the age of the oldest message of an outbox that has no subscription, because no relay has ever run for it. 0 without such a message.
	UnreadAge time.Duration `json:"unread_age_ns,omitempty"`
	// Segments of the ring; empty if the store has no ring.
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
	// OldestAge is the age of the oldest message in the backlog; 0 if it is empty.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// Settled counts messages settled since the subscription was created.
	Settled int64 `json:"settled"`
	// Rate is how many messages were settled per second over about the last minute.
	Rate float64 `json:"rate_per_second"`
	// DeadLetters counts the dead letters of this subscription.
	DeadLetters int64 `json:"dead_letters"`
	// Parked counts messages that wait for another attempt, or behind a message
	// that does. They are not part of the backlog. ParkedKeys counts their keys;
	// each message without a key counts as one. HeldKeys counts those keys that
	// wait for an operator, see driver.Verdict.Hold.
	Parked     int64 `json:"parked"`
	ParkedKeys int64 `json:"parked_keys"`
	HeldKeys   int64 `json:"held_keys"`
	// ParkedAge is the age of the oldest parked message, or 0 if none is parked. For an adopted table it is how long ago that
	// message was first refused.
	ParkedAge time.Duration `json:"parked_age_ns"`
	// Replaying is true until a replay is delivered completely.
	Replaying bool `json:"replaying,omitempty"`
	// Holder of the lease; empty if no relay has it now.
	Holder string `json:"holder,omitempty"`
	// HolderSince is when the holder took the lease.
	HolderSince time.Time `json:"holder_since,omitzero"`
	// Epoch counts how often the lease changed hands.
	Epoch int64 `json:"epoch"`
	// LeaseUntil is when the lease ends unless it is renewed.
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	// SinkDown is since when the sink accepts nothing, by the clock of the holder. It is zero while
	// the sink accepts messages, or if no relay has the lease. SinkError is the reason.
	SinkDown  time.Time `json:"sink_down_since,omitzero"`
	SinkError string    `json:"sink_error,omitempty"`
	// AtLeast names the figures that were not counted to their end, by their names in JSON.
	AtLeast []string `json:"at_least,omitempty"`
}

// Cap limits figures to most and names those that reach it in AtLeast. If most is 0, all were counted to their end.
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

// maxReasonBytes is how long the reason of a message that is given up may be.
const maxReasonBytes = 1000

// GiveUpReason is the last error of a message that an operator gives up: the reason, or one that says just that. It is a
// *penstock.FieldError if not every store can hold it.
func GiveUpReason(reason string) (string, error) {
	return cmp.Or(reason, "given up by an operator"), penstock.ValidateText("reason", reason, maxReasonBytes)
}

// DeadLetter is a message that was given up, with the reason.
type DeadLetter struct {
	Message penstock.Message
	// Failures are the latest attempts, up to MaxFailures, oldest first.
	Failures []penstock.Failure
	// At is when it last became a dead letter.
	At time.Time
	// Held is true if later messages of its key wait for it to be discarded, or
	// retried and delivered.
	Held bool
}

// Err returns the error text of the last attempt.
func (d DeadLetter) Err() string { return penstock.LastError(d.Failures) }

// DeadCause is an error, and the dead letters that have it as their last one.
type DeadCause struct {
	Error   string    `json:"error"`
	Letters int64     `json:"letters"`
	First   time.Time `json:"first_died_at"`
	Last    time.Time `json:"last_died_at"`
}

// ParkedKey is a key with parked messages, or one parked message that waits alone.
type ParkedKey struct {
	Key      string    `json:"key"`
	Messages int64     `json:"messages"`
	FirstSeq int64     `json:"first_seq"` // of the message that the others wait for; for a held key, of the dead letter
	Attempt  int       `json:"attempt"`   // how many attempts it has had
	Err      string    `json:"error"`
	Since    time.Time `json:"since,omitzero"`      // when its first attempt failed
	Retry    time.Time `json:"next_retry,omitzero"` // zero if held
	Held     bool      `json:"held"`
}

// Validate returns a *FieldError for a retention that no store accepts.
func (r Retention) Validate() error {
	switch {
	case r.Age != 0 && r.Age < time.Microsecond:
		return &penstock.FieldError{Field: "retention age", Problem: fmt.Sprintf("is %s", r.Age), Hint: "use a microsecond or more, or 0 to keep nothing for its age"}
	case r.Bytes < 0:
		return &penstock.FieldError{Field: "retention bytes", Problem: fmt.Sprintf("is %d", r.Bytes), Hint: "use a positive size, or 0 to keep nothing for its size"}
	}
	return nil
}
