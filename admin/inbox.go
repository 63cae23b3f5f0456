package admin

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// MaxRows is how many rows of a list one call returns at most: held messages and gaps, groups, running and found jobs.
const MaxRows = 10000

// InboxStatus is one inbox as `penstock inbox status` shows it.
type InboxStatus struct {
	Consumer string `json:"consumer"`
	// Keep is for how long the inbox knows an id at least.
	Keep time.Duration `json:"keep_ns"`
	// Bytes is the inbox's size on disk, with indexes; 0 where inboxes share their tables.
	Bytes    int64           `json:"bytes,omitempty"`
	Segments []SegmentStatus `json:"segments,omitempty"`
	// Held counts messages that are held back, HeldBytes the bytes of their payloads.
	Held      int64 `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
	// NextGap is when the first held message is handed over even if the one before it has
	// not come; zero if none is held. If this time has passed, no consumer calls Due.
	NextGap time.Time `json:"next_gap,omitzero"`
	// Gaps counts the gaps within the inbox's window, see InboxGaps.
	Gaps int64 `json:"gaps"`
}

// HeldQuery chooses held messages of one consumer. Every field that is not zero
// narrows the choice.
type HeldQuery struct {
	Consumer string
	Key      string
	// Previous is the id of the message that they wait for.
	Previous string
	// ID chooses one message. It is returned with its payload.
	ID string
	// Limit is how many are returned at most, 1 to MaxRows; 0 means 100.
	Limit int
}

// HeldMessage is a message that came before the one it follows.
type HeldMessage struct {
	// Message has ID, Key and Headers, and the Payload if it was chosen by ID.
	penstock.Message
	PayloadBytes int64
	// Previous is the id of the message that it waits for. PreviousHeld is true if that
	// message has come and is held as well.
	Previous     string
	PreviousHeld bool
	// At is when it came. Due is when it is handed over even if Previous has not come.
	At, Due time.Time
}

// InboxGap is a message that did not arrive in time.
type InboxGap struct {
	Missing string `json:"missing"`
	Key     string `json:"key"`
	// Next is the id of the message that was handed over in its place; empty if none was yet.
	Next string `json:"followed_by,omitempty"`
	// At is when the gap was reported.
	At time.Time `json:"reported_at"`
	// Discarded: it had come, and DiscardHeld removed it.
	Discarded bool `json:"discarded"`
	// Came: it was received later, and handed over late.
	Came bool `json:"came"`
}

// SetDefaults sets the limit if it is zero.
func (q *HeldQuery) SetDefaults() { q.Limit = cmp.Or(q.Limit, 100) }

// ValidateLimit returns a *FieldError for a limit of a list that no store accepts.
func ValidateLimit(n int) error {
	if n < 1 || n > MaxRows {
		return &penstock.FieldError{Field: "limit", Problem: fmt.Sprintf("is %d", n), Hint: fmt.Sprintf("use 1 to %d", MaxRows)}
	}
	return nil
}
