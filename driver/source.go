package driver

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// Source is one subscription of one outbox, held under a lease. A store returns it
// from Subscribe, and the relay calls it: Fetch from one goroutine at a time, Settle
// and Renew possibly at the same time.
type Source interface {
	// Fetch returns the next messages in order: up to limit.Messages, and about
	// limit.Bytes by their Size, but at least one. It does not wait: a batch without
	// messages means that no new ones are committed now. Each message is returned once
	// per Source. After Close or a fence, the next Subscribe gets those not settled.
	//
	// After an error the Source connects again. If it then continues from
	// its durable cursor, messages are returned again and Batch.Rewound is true.
	// ErrClosed after Close.
	Fetch(ctx context.Context, limit Limit) (Batch, error)

	// Settle stores verdicts durably, all of one call together. On return no message
	// with a verdict comes again, from this Source or the next; a Parked one
	// comes when it is due. The caller settles batches in the order of their numbers.
	//
	// ErrFenced: the lease was lost, and nothing changed. After another error the call
	// may have taken effect. The caller repeats it with the same attempt and the same
	// news before any other call, and it takes effect once. A later call has a higher
	// attempt. A batch from before a Rewound one is ignored.
	Settle(ctx context.Context, attempt uint64, news ...Settled) error

	// Renew extends the lease. ErrFenced if it was lost. The relay calls it about
	// three times per lease time.
	Renew(ctx context.Context) error

	// Close gives the lease back, so that another reader can start at once. It
	// settles nothing.
	Close(ctx context.Context) error
}

// Sharer is a Store in which several readers can share a subscription, to deliver more messages per second.
type Sharer interface {
	// SubscribeShared adds a reader to a subscription. Each reader has a part of the keys, and a part of the messages without a
	// key. Renew hands keys over to new readers, and takes over those of readers that left or lost their lease. ErrHeld if one
	// reader has the subscription alone, as Subscribe returns for one that is shared.
	SubscribeShared(ctx context.Context, req Subscribe) (Source, error)
}

// SinkReporter is a Source that keeps the state of the sink for Status. The relay calls it when
// that changes, at the same time as other methods.
type SinkReporter interface {
	// ReportSink reports since when the sink accepts nothing, and why. A zero time means that it accepts messages.
	// why has at most MaxSinkErrorBytes of valid UTF-8 without NUL. Status shows it while this Source has
	// the lease. ErrFenced if the lease was lost.
	ReportSink(ctx context.Context, down time.Time, why string) error
}

// MaxSinkErrorBytes is how many bytes of a sink's error Status keeps.
const MaxSinkErrorBytes = 500

// Limit bounds one Fetch.
type Limit struct {
	Messages int
	Bytes    int
}

// Batch is the result of one Fetch.
type Batch struct {
	// Messages in the order in which they must be sent, per key.
	Messages []penstock.Message
	// Number counts the batches of this Source with at least one message,
	// from 1. Settle refers to it.
	Number uint64
	// More is true if the store knows that more messages are waiting. Then the
	// relay need not pause before the next Fetch.
	More bool
	// Rewound is true if the Source went back to the durable cursor: batches
	// returned earlier and not settled will come again, and the relay must
	// forget them.
	Rewound bool
	// KeyOrder has one entry per message; nil means that all are InOrder.
	KeyOrder []KeyOrder
	// Places has one entry per message, or is nil. Of two messages of a key, the one with the lower place
	// comes first. If the places are equal or nil, the one with the lower Seq does.
	Places []int64
	// GivenUp has the reasons for which an operator gives up parked messages, by their index. Such a message is not sent. Its verdict is Dead,
	// with the reason as a failure of attempt 0.
	GivenUp map[int]string
	// Source is for the Source itself: its data about the batch, until it is settled.
	Source any
}

// Order is how a message is ordered among those of its key.
func (b *Batch) Order(i int) KeyOrder {
	if b.KeyOrder == nil {
		return InOrder
	}
	return b.KeyOrder[i]
}

// Place returns where a message of the batch is among those of its key.
func (b *Batch) Place(i int) Place {
	p := Place{seq: b.Messages[i].Seq}
	if b.Places != nil {
		p.at = b.Places[i]
	}
	return p
}

// Place of a message among those of its key, in one subscription.
type Place struct{ at, seq int64 }

// Before reports whether the message of p comes before that of o.
func (p Place) Before(o Place) bool { return p.at < o.at || p.at == o.at && p.seq < o.seq }

// KeyOrder is how a message is ordered among those of its key.
type KeyOrder uint8

const (
	// InOrder: it is sent in its turn, and later messages of its key wait for it.
	InOrder KeyOrder = iota
	// BehindParked: its key had parked messages when this Fetch began, and it is
	// parked behind them, unsent. The caller itself tracks keys that it parked since.
	BehindParked
	// OutOfOrder: its key has continued without it and no message waits for it, for
	// example a dead letter that was sent back. It is never parked behind others.
	OutOfOrder
)

// Settled has the new verdicts of one batch. Each message has its verdict once, and
// messages of a key get theirs in their order.
type Settled struct {
	Batch Batch
	// Verdicts has one entry per message, Undecided if it has no new verdict. Nil means
	// that all were delivered.
	Verdicts []Verdict
	// Open: a message of this batch or of an earlier one has no verdict yet, so the cursor
	// cannot pass. Once all have one, the batch is settled a last time and not Open, even
	// if it has no new verdict.
	Open bool
}

// Verdict is the outcome of a message, with its details.
type Verdict struct {
	Outcome Outcome
	// Failures since the message was fetched, oldest first. The store adds them to
	// earlier ones. A Parked message without any waits behind an earlier message of
	// its key, or no attempt was counted.
	Failures []penstock.Failure
	// RetryIn is how long a Parked message stays in the store before Fetch returns
	// it again. It counts for the first message of its key. Those behind it follow
	// when the first is delivered or dead.
	RetryIn time.Duration
	// Hold is for a Dead message that is InOrder. Later messages of its key are parked
	// until an operator discards it, or retries it and it is delivered.
	Hold bool
}

// Err returns the error text of the last failure.
func (v Verdict) Err() string { return penstock.LastError(v.Failures) }

// Outcome of a message.
type Outcome uint8

const (
	// Delivered: the sink confirmed it.
	Delivered Outcome = iota
	// Dead: it is kept as a dead letter until an operator retries or discards it.
	Dead
	// Parked: the store keeps it, so that the cursor can pass, and Fetch returns it
	// again when it is due. Messages of a parked key come back in their first order.
	// If the first was refused it comes alone, and the others follow once it is
	// delivered or dead. Later messages of the key are returned BehindParked until
	// none is parked. A message without a key, or OutOfOrder, is parked alone.
	Parked
	// Undecided: the message has no verdict yet, or an earlier Settle had it. Without a
	// verdict it comes again if the Source is closed. A message that is Parked, or that
	// waits behind a dead letter with Hold, is settled with all that follow it in its
	// batch.
	Undecided
)

// Subscribe names the subscription to read, and its reader.
type Subscribe struct {
	Outbox       string
	Subscription string
	// Holder names the relay in status and in HeldError, for example by host and process. At most MaxHolderBytes.
	Holder string
	// Lease is how long the subscription stays with this holder without a
	// Renew. Default 15 s.
	Lease time.Duration
	// Start applies when the subscription does not exist yet.
	Start Start
	// Ephemeral reads without a cursor or a lease, for tail. Nothing is created, and
	// Settle and Renew do nothing. The reader does not delay the reclaim of messages,
	// so it may miss some.
	Ephemeral bool
}

// Start is where a new subscription begins.
type Start uint8

const (
	// FromBeginning: the oldest message that is still retained.
	FromBeginning Start = iota
	// FromNow: messages whose transactions commit from now on.
	FromNow
)

// DefaultLease is used where Subscribe.Lease is zero.
const DefaultLease = 15 * time.Second

// SetDefaults sets the lease if it is zero.
func (s *Subscribe) SetDefaults() { s.Lease = cmp.Or(s.Lease, DefaultLease) }

// Validate returns a *FieldError for the first field of a subscription that no store accepts. Call SetDefaults before.
func (s *Subscribe) Validate() error {
	if err := ValidateLease(s.Lease); err != nil {
		return err
	}
	if err := penstock.ValidateText("holder", s.Holder, penstock.MaxHolderBytes); err != nil || s.Ephemeral {
		return err
	}
	return penstock.ValidateName("subscription", s.Subscription, penstock.MaxSubscriptionBytes)
}

// ValidateLease returns a *FieldError for a lease that is not positive.
func ValidateLease(lease time.Duration) error {
	if lease <= 0 {
		return &penstock.FieldError{Field: "lease", Problem: fmt.Sprintf("is %s", lease), Hint: "use a positive time, longer than a job takes or than the time between two renewals"}
	}
	return nil
}

// Validate returns a *FieldError for a limit that no Fetch accepts.
func (l Limit) Validate() error {
	if l.Messages <= 0 || l.Bytes <= 0 {
		return &penstock.FieldError{Field: "limit", Problem: fmt.Sprintf("is %d messages and %d bytes", l.Messages, l.Bytes), Hint: "both must be positive"}
	}
	return nil
}
