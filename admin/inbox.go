package admin

import (
	"cmp"
	"time"

	"github.com/penstock/penstock"
)

// MaxInboxRows is the most that HeldMessages and InboxGaps return.
const MaxInboxRows = 10000

// InboxStatus is one inbox as `penstock inbox status` shows it.
type InboxStatus struct {
	Consumer string `json:"consumer"`
	// Keep is how long ids are known at least.
	Keep time.Duration `json:"keep_ns"`
	// Bytes is what the inbox takes on disk, with indexes; 0 where inboxes share their tables.
	Bytes    int64           `json:"bytes,omitempty"`
	Segments []SegmentStatus `json:"segments,omitempty"`
	// Held counts messages that are held back, HeldBytes the bytes of their payloads.
	Held      int64 `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
	// NextGap is when the first of them is handed over in any case; zero without one.
	// If it has passed, nobody calls Due.
	NextGap time.Time `json:"next_gap,omitzero"`
	// Gaps counts those that InboxGaps returns.
	Gaps int64 `json:"gaps"`
}

// HeldQuery chooses held messages of one consumer. Every field that is not zero
// narrows the choice.
type HeldQuery struct {
	Consumer string
	Key      string
	// Previous is what they wait for.
	Previous string
	// ID chooses one message, which comes with its payload.
	ID string
	// Limit is the most that are returned, 1 to MaxInboxRows; 0 means 100.
	Limit int
}

// HeldMessage is a message that came before the one it follows.
type HeldMessage struct {
	// Message has ID, Key and Headers, and the Payload if it was chosen by ID.
	penstock.Message
	PayloadBytes int64
	// Previous is what it waits for. PreviousHeld is true if that has come, and is held
	// itself.
	Previous     string
	PreviousHeld bool
	// At is when it came, Due when it is handed over in any case.
	At, Due time.Time
}

// InboxGap is a message that was waited for in vain.
type InboxGap struct {
	Missing string `json:"missing"`
	Key     string `json:"key"`
	// Next was handed over in its place; empty if nothing was yet.
	Next string `json:"followed_by,omitempty"`
	// At is when it was reported.
	At time.Time `json:"reported_at"`
	// Discarded: it had come, and DiscardHeld removed it.
	Discarded bool `json:"discarded"`
	// Came: it was received after all, and handed over late.
	Came bool `json:"came"`
}

// SetDefaults fills in the limit.
func (q *HeldQuery) SetDefaults() { q.Limit = cmp.Or(q.Limit, 100) }

// ValidateInboxRows reports a number of rows that no store takes, as a *FieldError.
func ValidateInboxRows(n int) error {
	if n < 1 || n > MaxInboxRows {
		return &penstock.FieldError{Field: "limit", Problem: "is out of range", Hint: "use 1 to 10000"}
	}
	return nil
}
