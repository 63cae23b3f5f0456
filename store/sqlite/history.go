package sqlite

import (
	"encoding/json"

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
		h = history{Attempt: 1, Failures: []penstock.Failure{{Err: "earlier failures cannot be read: " + err.Error()}}}
	}
	h.Attempt = min(max(h.Attempt, 0), mostAttempts)
	return h
}
