package penstock

import (
	"errors"
	"fmt"
	"time"
)

// HeaderPrevious names the header that holds the id of the message that was sent
// before it with the same key; previous.Wrap adds it. A message without it has
// no predecessor that the relay knows of.
const HeaderPrevious = "penstock-previous"

// An inbox remembers, in a consumer's own database, which messages it has received,
// so that what the consumer writes in the same transaction takes effect once. A
// store's Inbox type is the driver's, because the transaction's is.
var (
	// ErrNoInbox: the consumer has no inbox.
	ErrNoInbox = errors.New("no such inbox")
	// ErrInboxExists: the consumer has an inbox already.
	ErrInboxExists = errors.New("the inbox exists already")
)

// How long an inbox may remember an id, and how long it does unless told otherwise.
const (
	MinInboxKeep     = time.Minute
	MaxInboxKeep     = 10 * 365 * 24 * time.Hour
	DefaultInboxKeep = 7 * 24 * time.Hour
)

// Released is a message that an inbox in order hands to its consumer: the one that
// came, or one that was held back for it.
type Released struct {
	// Message has the ID, Key, Headers and Payload that were received; what was held
	// back has nothing else.
	Message
	// Gap is true if the message before it, Missing, was waited for in vain.
	Gap     bool
	Missing string
	// Late is true if others of its key were handed over in its place: it was itself
	// reported missing, or since the message before it was handed over, its key has gone
	// on past a gap, or it comes behind a gap and was written before what was handed over. The
	// last only ids tell that an outbox made: of others, what comes behind a gap is taken for newer than
	// what was handed over. The consumer decides what it is worth now.
	Late bool
}

// ValidateInboxKeep reports a time that no inbox takes, as a *FieldError.
func ValidateInboxKeep(keep time.Duration) error {
	if keep < MinInboxKeep || keep > MaxInboxKeep {
		return &FieldError{Field: "keep", Problem: fmt.Sprintf("is %s", keep),
			Hint: "give the longest time after which a message may come again, between a minute and ten years"}
	}
	return nil
}

// ValidateReceived reports what an inbox cannot take of a received message, as a
// *FieldError.
func ValidateReceived(m *Message) error {
	if m.ID == "" {
		return &FieldError{Field: "id", Problem: "is empty", Hint: "pass the id that the message carries, for example AMQP message-id"}
	}
	if previous := m.Headers[HeaderPrevious]; previous == m.ID {
		return &FieldError{Field: HeaderPrevious, Problem: fmt.Sprintf("is %q, the message's own id", previous), Hint: "pass the header as it came"}
	} else if err := ValidateText(HeaderPrevious, previous, MaxIDBytes); err != nil {
		return err
	}
	return m.Validate()
}
