package relay

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock"
)

// Observer observes the relay. It is called once per Send, Fetch or
// Settle, never per message, from several goroutines, and must not block.
type Observer interface {
	// Sent follows every Send.
	Sent(Send)
	// Fetched follows every Fetch that succeeded, also without messages.
	Fetched(messages int, took time.Duration)
	// Settled follows every durable write of the cursor.
	Settled(messages int, took time.Duration)
	// Parked follows a durable write that parked messages: those that were
	// refused, and those that wait behind them. A message counts each time.
	Parked(messages int)
	// Dead follows a durable write that made dead letters.
	Dead(messages int)
	// InFlight gets how many messages are fetched and not settled now.
	InFlight(messages int)
	// Sink gets the state of the sink whenever that changes.
	Sink(SinkState)
	// Lease gets true when the relay took the lease, and false when the lease ran out,
	// was lost or was given back.
	Lease(held bool)
}

// Send is one call of the sink with its result. Messages and Errors belong to the relay.
// An Observer may read them until its call ends.
type Send struct {
	Messages []penstock.Message
	// Errors are the sink's, one per message. Nil means that all were confirmed.
	Errors []error
	// Answered is when the sink answered. Took is how long the call took.
	Answered time.Time
	Took     time.Duration
	// Delivered is how many messages the sink confirmed, and Failed how many it refused.
	// Messages that found the sink unavailable count as neither. Retried is how many of
	// Messages had been refused before.
	Delivered, Failed, Retried int
}

// SinkState is the state of the sink, as the relay sees it.
type SinkState uint8

const (
	SinkUp          = SinkState(closed)
	SinkUnavailable = SinkState(unavailable) // it cannot be reached
	SinkRefusing    = SinkState(refusing)    // it answers, and refuses everything
)

// Counters is an Observer that adds up. The zero value is ready to use.
type Counters struct {
	Delivered, Failed, Retried atomic.Int64
	// SettledMessages counts messages that will not be sent again.
	SettledMessages atomic.Int64
	// ParkedMessages and DeadLetters are the sums of the arguments of Parked and Dead.
	ParkedMessages, DeadLetters atomic.Int64
	// InFlightMessages is the latest number, not a sum.
	InFlightMessages atomic.Int64
}

var _ Observer = (*Counters)(nil)

// Sent implements Observer.
func (c *Counters) Sent(s Send) {
	c.Delivered.Add(int64(s.Delivered))
	if s.Failed > 0 {
		c.Failed.Add(int64(s.Failed))
	}
	if s.Retried > 0 {
		c.Retried.Add(int64(s.Retried))
	}
}

// Fetched implements Observer.
func (c *Counters) Fetched(int, time.Duration) {}

// Settled implements Observer.
func (c *Counters) Settled(messages int, _ time.Duration) { c.SettledMessages.Add(int64(messages)) }

// Parked implements Observer.
func (c *Counters) Parked(messages int) { c.ParkedMessages.Add(int64(messages)) }

// Dead implements Observer.
func (c *Counters) Dead(messages int) { c.DeadLetters.Add(int64(messages)) }

// InFlight implements Observer.
func (c *Counters) InFlight(messages int) { c.InFlightMessages.Store(int64(messages)) }

// Sink implements Observer.
func (c *Counters) Sink(SinkState) {}

// Lease implements Observer.
func (c *Counters) Lease(bool) {}
