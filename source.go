package penstock

import (
	"context"
	"time"
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

	// Settle makes verdicts durable: on return the cursor has moved past every
	// leading batch that is settled, and a batch settled before an earlier one
	// is remembered until its turn. All batches of one call take effect
	// together, in one transaction. ErrFenced if the lease was lost; then
	// nothing was changed. After another error it may or may not have taken
	// effect: call it again, a batch that is settled already is passed over.
	Settle(ctx context.Context, settled ...Settled) error

	// Renew extends the lease, ErrFenced if it was lost. The relay calls it
	// about three times per lease time.
	Renew(ctx context.Context) error

	// Close gives the lease back, so that another reader can start at once.
	// It settles nothing.
	Close(ctx context.Context) error
}

// Limit bounds one Fetch.
type Limit struct {
	Messages int
	Bytes    int
}

// Batch is what one Fetch returned.
type Batch struct {
	// Messages in the order in which they must be sent, per key.
	Messages []Message
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
}

// Settled is the outcome of one whole batch.
type Settled struct {
	Batch Batch
	// Verdicts has one entry per message; nil means that all were delivered.
	Verdicts []Verdict
}

// Verdict is what became of a message.
type Verdict struct {
	Outcome Outcome
	// Err says why, for every outcome but Delivered.
	Err string
}

// Outcome of a message.
type Outcome uint8

const (
	// Delivered: the sink confirmed it.
	Delivered Outcome = iota
	// Dead: it is kept as a dead letter until someone retries or discards it.
	Dead
)

// Subscribe says which subscription to read, and as whom.
type Subscribe struct {
	Outbox       string
	Subscription string
	// Holder names the relay in status and in HeldError: host and process, say.
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
