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
	*Options
	spread func(time.Duration) time.Duration
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
	if penstock.IsPermanent(r.err) || p.MaxAttempts > 0 && r.attempt >= p.MaxAttempts || p.MaxAge > 0 && r.age >= p.MaxAge {
		return decision{action: die, hold: p.holds(r.inOrder)}
	}
	in, asked := penstock.RetryDelay(r.err)
	if !asked || in <= 0 {
		in = p.spread(grown(r.attempt, p.RetryMin, p.RetryMax))
	}
	if r.fresh && r.tries < p.ParkAfter && in <= longestWait {
		return decision{action: again, in: in}
	}
	return decision{action: park, in: in}
}

// holds reports whether the key of a dead letter waits for an operator.
func (p *retryPolicy) holds(inOrder bool) bool { return p.OnDead == OnDeadHold && inOrder }
