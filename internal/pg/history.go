package pg

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// History is the attempts of a message or a job so far. SQLite keeps it whole, as JSON.
type History struct {
	Attempt  int                `json:"attempts"`       // how many it has had: more than Failures, of which only the latest are kept
	Since    time.Time          `json:"since,omitzero"` // of the first failure, zero if there was none
	Failures []penstock.Failure `json:"failures,omitempty"`
	Report   json.RawMessage    `json:"report,omitempty"` // of a job: what its attempts reported, on SQLite
}

// And adds the failures of a verdict.
func (h History) And(failures []penstock.Failure) History {
	if len(failures) == 0 {
		return h
	}
	if h.Since.IsZero() {
		h.Since = failures[0].At.UTC()
	}
	h.Attempt = max(h.Attempt+Attempts(failures), failures[len(failures)-1].Attempt)
	if _, given := h.GivenUp(); given {
		h.Failures = h.Failures[:len(h.Failures)-1]
	}
	all := append(h.Failures[:len(h.Failures):len(h.Failures)], failures...)
	h.Failures = all[max(0, len(all)-penstock.MaxFailures):]
	return h
}

// Attempts counts those that failed: an operator's reason is not one.
func Attempts(failures []penstock.Failure) (n int) {
	for _, f := range failures {
		if f.Attempt > 0 {
			n++
		}
	}
	return n
}

// givenUp is the Attempt of a last failure that is an order: an operator gives the message up, for this reason. The relay's verdict replaces it.
const givenUp = -1

// GiveUp orders the relay to give the message up.
func (h History) GiveUp(reason string) History {
	attempt, since := h.Attempt, h.Since
	h = h.And([]penstock.Failure{{Attempt: givenUp, At: time.Now().UTC(), Err: reason}})
	h.Attempt, h.Since = attempt, since
	return h
}

// GivenUp reports whether an operator has given the message up, and why.
func (h History) GivenUp() (reason string, given bool) {
	if n := len(h.Failures); n > 0 && h.Failures[n-1].Attempt == givenUp {
		return h.Failures[n-1].Err, true
	}
	return "", false
}

// JSON is the failures as jsonb.
func (h History) JSON() string {
	kept := make([]penstock.Failure, len(h.Failures))
	for i, f := range h.Failures {
		f.Err = withoutNUL(f.Err)
		kept[i] = f
	}
	text, err := json.Marshal(kept)
	if err != nil { // times and strings: there is no error
		return "[]"
	}
	return string(text)
}

// Parse reads the failures that JSON wrote; an empty text has none. An entry that was written by hand and cannot be
// parsed becomes a failure that says so. It must not hide the others, or stop a reader.
func (h *History) Parse(text []byte) {
	if len(text) == 0 {
		return
	}
	if err := json.Unmarshal(text, &h.Failures); err != nil {
		h.Failures = []penstock.Failure{{Attempt: h.Attempt, Err: "earlier failures cannot be read: " + err.Error()}}
	}
}

// LastError is the latest failure's text, as a column stores it.
func (h History) LastError() string {
	return withoutNUL(driver.Verdict{Failures: h.Failures}.Err())
}

func withoutNUL(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }
