package penstock

import "time"

// Failure is one attempt that the sink refused. Attempt is 0 for the reason of an operator who gave the message up: that is not an attempt.
//
// The next attempt of a message is the one it came with plus its new failures.
type Failure struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Err     string    `json:"error"`
}

// MaxFailures is how many failures a store keeps of one message. It keeps the latest.
const MaxFailures = 10

// LastError returns the error text of the last failure, or "" if there are none.
func LastError(failures []Failure) string {
	if len(failures) == 0 {
		return ""
	}
	return failures[len(failures)-1].Err
}
