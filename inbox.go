package penstock

import (
	"errors"
	"fmt"
	"time"
)

// HeaderPrevious is the header with the id of the message that was sent before this
// one with the same key. previous.Wrap adds it. The relay knows no predecessor of a
// message without it.
const HeaderPrevious = "penstock-previous"

// HeaderClaimCheck is the header of a message whose payload is stored elsewhere. claimcheck.Wrap
// adds it, and claimcheck.Open reads it.
const HeaderClaimCheck = "penstock-claim-check"

// An inbox remembers, in a consumer's own database, which messages it has received.
// So the consumer's writes in the same transaction take effect once. Each store has
// its own Inbox type, because the types of transactions differ.
var (
	// ErrNoInbox: the consumer has no inbox.
	ErrNoInbox = errors.New("no such inbox")
	// ErrInboxExists: the consumer has an inbox already.
	ErrInboxExists = errors.New("the inbox exists already")
)

// How long an inbox remembers an id: the limits, and the default.
const (
	MinInboxKeep     = time.Minute
	MaxInboxKeep     = 10 * 365 * 24 * time.Hour
	DefaultInboxKeep = 7 * 24 * time.Hour
)

// Released is a message that an inbox in order hands to its consumer: the one that
// was received, or one that was held back until it came.
type Released struct {
	// Message has the ID, Key, Headers and Payload that were received. A message that
	// was held back has nothing else.
	Message
	// Gap is true if the message before it, whose id is Missing, did not arrive in time.
	Gap     bool
	Missing string
	// Late is true if its place among the messages of its key has passed, for one of these
	// reasons:
	//
	//   - it was itself reported missing
	//   - its key has continued past a gap since the message before it was handed over
	//   - it comes behind a gap, and was written before messages that were handed over
	//
	// The inbox recognizes the last case by the ids that an outbox makes. With other ids it
	// assumes that a message behind a gap is newer. The consumer decides about a
	// late message.
	Late bool
}

// ValidateInboxKeep returns a *FieldError for a time that no inbox accepts.
func ValidateInboxKeep(keep time.Duration) error {
	if keep < MinInboxKeep || keep > MaxInboxKeep {
		return &FieldError{Field: "keep", Problem: fmt.Sprintf("is %s", keep),
			Hint: "give the longest time after which a message may come again, between a minute and ten years"}
	}
	return nil
}

// ValidateReceived returns a *FieldError for the first field of a received message
// that an inbox cannot accept.
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
