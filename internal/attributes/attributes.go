// Package attributes has a message as names and values, for brokers that have no property for an id or a topic.
package attributes

import (
	"iter"
	"strconv"
	"time"

	"github.com/penstock/penstock"
)

// Names of Penstock's own attributes. They win over headers of the same name in the message.
const (
	ID        = "penstock-id"
	Key       = "penstock-key"
	Topic     = "penstock-topic"
	CreatedAt = "penstock-created-at" // RFC 3339, nanoseconds, UTC
	Attempt   = "penstock-attempt"    // from the second on
)

// IsOwn reports whether an attribute is Penstock's own.
func IsOwn(name string) bool {
	switch name {
	case ID, Key, Topic, CreatedAt, Attempt:
		return true
	}
	return false
}

// Of yields Penstock's own attributes of a message, without those that are empty, and then its headers.
func Of(m *penstock.Message) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		own := [...][2]string{{ID, m.ID}, {Topic, m.Topic}, {CreatedAt, m.CreatedAt.UTC().Format(time.RFC3339Nano)}, {Key, m.Key}, {Attempt}}
		if m.Attempt > 1 {
			own[4][1] = strconv.Itoa(m.Attempt)
		}
		for _, a := range own {
			if a[1] != "" && !yield(a[0], a[1]) {
				return
			}
		}
		for name, value := range m.Headers {
			if !IsOwn(name) && !yield(name, value) {
				return
			}
		}
	}
}
