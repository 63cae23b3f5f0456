package sqlite

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// history has the attempts of a message so far: a column of JSON next to it.
type history struct {
	// Attempts it has had. More than Failures, of which only the latest are kept.
	Attempts int                `json:"attempts"`
	Since    time.Time          `json:"since,omitzero"` // when the first one failed
	Failures []penstock.Failure `json:"failures,omitempty"`
}

// mostAttempts is more than the attempts of any message: a larger number, written by hand, continues from
// there.
const mostAttempts = 1_000_000_000

// readHistory reads the column; "" is a message that was never refused. An entry that was written by hand and cannot be
// read becomes a failure that says so. It must not hide the others, or stop a reader.
func readHistory(column string) (h history) {
	if column == "" {
		return h
	}
	if err := json.Unmarshal([]byte(column), &h); err != nil {
		h = history{Attempts: 1, Failures: []penstock.Failure{{Err: "what failed before cannot be read: " + err.Error()}}}
	}
	h.Attempts = min(max(h.Attempts, 0), mostAttempts)
	return h
}

// after is the history once these failures have come to it.
func (h history) after(failures []penstock.Failure) history {
	if len(failures) == 0 {
		return h
	}
	if h.Since.IsZero() {
		h.Since = failures[0].At.UTC()
	}
	h.Attempts += len(failures)
	all := slices.Concat(h.Failures, failures)
	h.Failures = all[max(0, len(all)-penstock.MaxFailures):]
	return h
}

// dead is the history of a message that is given up. It had an attempt even if no failure was
// noted.
func (h history) dead(failures []penstock.Failure) history {
	if len(failures) == 0 {
		h.Attempts++
	}
	return h.after(failures)
}

// refused reports whether an attempt was made.
func (h *history) refused() bool { return h.Attempts > 0 }

// deadLetter makes a dead letter of m.
func (h *history) deadLetter(m penstock.Message, at int64, held bool) admin.DeadLetter {
	m.Attempt, m.FailedSince = h.Attempts, h.Since
	return admin.DeadLetter{Message: m, Failures: h.Failures, At: fromMicros(at), Held: held}
}

// fromMicros reads a time that was written with UnixMicro; 0 is the zero time.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
