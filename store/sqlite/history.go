package sqlite

import (
	"encoding/json"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pg"
)

// history is that of a message or a job: a column of JSON next to it.
type history = pg.History

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
		h = history{Attempt: 1, Failures: []penstock.Failure{{Err: "what failed before cannot be read: " + err.Error()}}}
	}
	h.Attempt = min(max(h.Attempt, 0), mostAttempts)
	return h
}

// givenUp is the history of a message that is a dead letter. It had an attempt even if no failure was noted.
func givenUp(h history, failures []penstock.Failure) history {
	if len(failures) == 0 {
		h.Attempt++
	}
	return h.And(failures)
}

// fromMicros reads a time that was written with UnixMicro; 0 is the zero time.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
