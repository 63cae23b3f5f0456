package driver

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// Source is one subscription of one outbox, held under a lease. The relay calls
// it; a store returns it from Subscribe. Fetch is called by one goroutine at a
// time; Settle and Renew may run beside it.
type Source interface {
	// Fetch returns the next messages in order, up to limit.Messages and, by
	// their Size, about limit.Bytes (at least one message). It does not wait: a
	// batch without messages means that nothing new is committed now. Each
	// message is returned once per Source; what is not settled when the Source
	// is closed or fenced comes back to the next Subscribe.
	//
	// After an error the Source may be used again: it connects anew by itself.
	// Should that make it go back to what is settled durably, messages are
	// returned again and the batch says so (Batch.Rewound). After Close it is
	// ErrClosed.
	Fetch(ctx context.Context, limit Limit) (Batch, error)

	// Settle makes durable what is new, all of one call together: on return no message
	// of it comes again, from this Source or the next. Batches come in order of their
	// numbers. ErrFenced if the lease was lost; then nothing was changed. After another
	// error the call may have taken effect or not: it is made again, with the same
	// attempt and the same news, before any other, and takes effect once. A later call
	// has a higher attempt. A batch from before a Rewound one is passed over.
	Settle(ctx context.Context, attempt uint64, news ...Settled) error

	// Renew extends the lease, ErrFenced if it was lost. The relay calls it
	// about three times per lease time.
	Renew(ctx context.Context) error

	// Close gives the lease back, so that another reader can start at once.
	// It settles nothing.
	Close(ctx context.Context) error
}

// Sharer is a Store whose subscriptions several readers can share, so that more of them deliver more.
type Sharer interface {
	// SubscribeShared joins those who read a subscription, or is the first. Each has a part of the keys, and messages without a
	// key in part. Renew gives some up to those who came, and takes those of one who has gone or whose lease has ended.
	// ErrHeld if somebody has it alone, as Subscribe says of one that is shared.
	SubscribeShared(ctx context.Context, req Subscribe) (Source, error)
}

// SinkReporter is a Source that Status can tell of how the sink is. The relay calls it when
// that changes, beside everything else.
type SinkReporter interface {
	// ReportSink says since when the sink takes nothing, and why, in at most
	// MaxSinkErrorBytes of valid UTF-8 without NUL; a zero time says that it takes messages. Status
	// shows it while this Source has the lease. ErrFenced if that was lost.
	ReportSink(ctx context.Context, down time.Time, why string) error
}

// MaxSinkErrorBytes is how much of a sink's error Status keeps.
const MaxSinkErrorBytes = 500

// Limit bounds one Fetch.
type Limit struct {
	Messages int
	Bytes    int
}

// Batch is what one Fetch returned.
type Batch struct {
	// Messages in the order in which they must be sent, per key.
	Messages []penstock.Message
	// Number counts the batches of this Source with at least one message,
	// from 1; Settle refers to it.
	Number uint64
	// More is true if the store knows that more is waiting, so that the relay
	// need not pause before the next Fetch.
	More bool
	// Rewound is true if the Source went back to the durable cursor: batches
	// returned earlier and not settled will come again, and the relay must
	// forget them.
	Rewound bool
	// KeyOrder has one entry per message; nil means that all are InOrder.
	KeyOrder []KeyOrder
	// Places has one entry per message where Seq alone does not say which of two messages of a key is
	// first: the one of the lower place is, and of one place the one of the lower Seq. Nil: Seq says it.
	Places []int64
	// Source is what the Source needs to know of the batch when it is settled.
	Source any
}

// Place tells where a message of the batch is among those of its key.
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
	// BehindParked: its key had parked messages when this Fetch began; it is parked
	// behind them, unsent. The caller itself tracks keys that it parked since then.
	BehindParked
	// OutOfOrder: its key has gone on without it, and nothing waits for it: a dead
	// letter that was sent back, say. It is never parked behind others.
	OutOfOrder
)

// Settled is what is new of one batch. Each message is in it once, with its verdict;
// those of a key come in their order.
type Settled struct {
	Batch Batch
	// Verdicts has one entry per message, Undecided where nothing is new; nil means
	// that all were delivered.
	Verdicts []Verdict
	// Open: a message of this batch or of one before it has no verdict yet, so the
	// cursor cannot pass. Once none is without, the batch is settled a last time and
	// not Open, if with nothing new.
	Open bool
}

// Verdict is what became of a message.
type Verdict struct {
	Outcome Outcome
	// Failures since the message was fetched, oldest first; the store adds them
	// to those it has. Parked without any: it waits behind an earlier message of
	// its key, or no attempt was counted.
	Failures []penstock.Failure
	// RetryIn, of a Parked one, is how long it stays in the store before Fetch
	// returns it again. It counts for the first message of its key; those behind
	// it follow when that one is delivered or dead.
	RetryIn time.Duration
	// Hold, of a Dead one that is InOrder, keeps its key waiting: what comes after
	// it is parked until someone discards it, or retries it and it is delivered.
	Hold bool
}

// Err is the last failure's text.
func (v Verdict) Err() string { return penstock.LastError(v.Failures) }

// Outcome of a message.
type Outcome uint8

const (
	// Delivered: the sink confirmed it.
	Delivered Outcome = iota
	// Dead: it is kept as a dead letter until someone retries or discards it.
	Dead
	// Parked: the store keeps it, so that the cursor can pass, and Fetch returns it
	// again when it is due. The messages of a parked key come back in their first
	// order: a first one that was refused comes alone, and once it is delivered or
	// dead the others follow. Later messages of the key are returned BehindParked
	// until none is parked. One without a key, or OutOfOrder, is parked by itself.
	Parked
	// Undecided: there is nothing new of the message. It has no verdict yet, and comes
	// again should the Source be closed before, or an earlier Settle had it. What is
	// Parked, or waits behind a dead letter that holds it, is settled with all that is
	// behind it in its batch.
	Undecided
)

// Subscribe says which subscription to read, and as whom.
type Subscribe struct {
	Outbox       string
	Subscription string
	// Holder names the relay in status and in HeldError: host and process, say. At most MaxHolderBytes.
	Holder string
	// Lease is how long the subscription stays with this holder without a
	// Renew. Default 15 s.
	Lease time.Duration
	// Start applies when the subscription does not exist yet.
	Start Start
	// Ephemeral reads along without a cursor or a lease: nothing is created,
	// Settle and Renew do nothing, and the reader holds back no reclaim, so it
	// may miss what was reclaimed before it came to it. For tail.
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

// SetDefaults fills in the lease.
func (s *Subscribe) SetDefaults() { s.Lease = cmp.Or(s.Lease, DefaultLease) }

// Validate reports what of a subscription no store takes, as a *FieldError. It expects defaults to be set.
func (s *Subscribe) Validate() error {
	if err := ValidateLease(s.Lease); err != nil {
		return err
	}
	if err := penstock.ValidateText("holder", s.Holder, penstock.MaxHolderBytes); err != nil || s.Ephemeral {
		return err
	}
	return penstock.ValidateName("subscription", s.Subscription, penstock.MaxSubscriptionBytes)
}

// ValidateLease reports a time that no lease has, as a *FieldError.
func ValidateLease(lease time.Duration) error {
	if lease <= 0 {
		return &penstock.FieldError{Field: "lease", Problem: fmt.Sprintf("is %s", lease), Hint: "use a positive time, longer than a job takes or than the time between two renewals"}
	}
	return nil
}

// Validate reports a limit that no Fetch takes, as a *FieldError.
func (l Limit) Validate() error {
	if l.Messages <= 0 || l.Bytes <= 0 {
		return &penstock.FieldError{Field: "limit", Problem: fmt.Sprintf("is %d messages and %d bytes", l.Messages, l.Bytes), Hint: "both must be positive"}
	}
	return nil
}
