package relay

import (
	"time"

	"github.com/penstock/penstock"
)

// OnDead decides about a key when one of its messages becomes a dead
// letter.
type OnDead string

const (
	// OnDeadContinue sends the next messages of the key.
	OnDeadContinue OnDead = "continue"
	// OnDeadHold parks the key's messages behind the dead letter until an operator
	// has discarded it, or retried it with success.
	OnDeadHold OnDead = "hold"
)

// longestWait is the longest that a refused message waits in memory, because meanwhile the cursor
// cannot pass it. A message that has to wait longer is parked.
const longestWait = time.Second

// retryPolicy decides about refused messages. It has no state.
type retryPolicy struct {
	least, most time.Duration // between two attempts
	maxAttempts int           // negative: no limit
	maxAge      time.Duration // zero: no limit
	parkAfter   int
	onDead      OnDead
	spread      func(time.Duration) time.Duration
}

func newRetryPolicy(c *Options) retryPolicy {
	return retryPolicy{least: c.RetryMin, most: c.RetryMax, maxAttempts: c.MaxAttempts, maxAge: c.MaxAge,
		parkAfter: c.ParkAfter, onDead: c.OnDead, spread: spread}
}

// refusal has the facts on which the decision depends.
type refusal struct {
	err     error
	attempt int           // of the message, this one included
	tries   int           // of them since it was fetched
	age     time.Duration // since its first refusal
	fresh   bool          // it came with attempt 1 and may be tried again from memory
	inOrder bool          // others of its key wait for it
}

type action uint8

const (
	again action = iota // from memory
	park
	die
)

type decision struct {
	action action
	in     time.Duration // until the next attempt
	hold   bool          // for a dead letter: its key waits for an operator
}

func (p *retryPolicy) decide(r refusal) decision {
	if penstock.IsPermanent(r.err) || p.maxAttempts > 0 && r.attempt >= p.maxAttempts || p.maxAge > 0 && r.age >= p.maxAge {
		return decision{action: die, hold: p.holds(r.inOrder)}
	}
	in, asked := penstock.RetryDelay(r.err)
	if !asked || in <= 0 {
		in = p.spread(grown(r.attempt, p.least, p.most))
	}
	if r.fresh && r.tries < p.parkAfter && in <= longestWait {
		return decision{action: again, in: in}
	}
	return decision{action: park, in: in}
}

// holds reports whether the key of a dead letter waits for an operator.
func (p *retryPolicy) holds(inOrder bool) bool { return p.onDead == OnDeadHold && inOrder }
