package adopt

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/penstock/penstock"
)

// history is what a row has behind it.
type history struct {
	attempt  int
	failures []penstock.Failure
	since    time.Time // of the first failure, zero if there was none
}

// and adds the failures of a verdict.
func (h history) and(failures []penstock.Failure) history {
	if len(failures) == 0 {
		return h
	}
	if h.since.IsZero() {
		h.since = failures[0].At
	}
	h.attempt = max(h.attempt+len(failures), failures[len(failures)-1].Attempt)
	all := append(h.failures[:len(h.failures):len(h.failures)], failures...)
	h.failures = all[max(0, len(all)-penstock.MaxFailures):]
	return h
}

func (h *history) json() string {
	kept := make([]penstock.Failure, len(h.failures))
	for i, f := range h.failures { // jsonb has no NUL
		f.Err = strings.ReplaceAll(f.Err, "\x00", "\uFFFD")
		kept[i] = f
	}
	text, err := json.Marshal(kept)
	if err != nil { // times and strings: there is no error
		return "[]"
	}
	return string(text)
}

func (h *history) parse(failures []byte) error { return json.Unmarshal(failures, &h.failures) }

func (h *history) lastError() string {
	if len(h.failures) == 0 {
		return ""
	}
	return strings.ReplaceAll(h.failures[len(h.failures)-1].Err, "\x00", "\uFFFD")
}

// A line is the rows of one message key, or one row.
func lineOf(key, id string) string {
	if key == "" {
		return "s" + id
	}
	return "k" + key
}
