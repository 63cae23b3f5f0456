package relay

import "sync/atomic"

// Observer is told what the relay does. It is called once per Send, Fetch or
// Settle, never per message, from several goroutines, and must not block.
type Observer interface {
	// Sent follows every Send: how many messages the sink confirmed, how many it
	// refused, and how many of both had been refused before. Messages that found
	// the sink unavailable count as neither.
	Sent(delivered, failed, retried int)
	// Settled follows every durable write of the cursor.
	Settled(messages int)
	// Parked follows a durable write that parked messages: those that were
	// refused, and those that wait behind them. A message counts each time.
	Parked(messages int)
	// Dead follows a durable write that made dead letters.
	Dead(messages int)
	// InFlight tells how many messages are fetched and not settled now.
	InFlight(messages int)
}

// Counters is an Observer that adds up. The zero value is ready.
type Counters struct {
	Delivered, Failed, Retried atomic.Int64
	// Settled counts messages that will not be sent again.
	SettledMessages atomic.Int64
	// ParkedMessages and DeadLetters add up what Parked and Dead were told.
	ParkedMessages, DeadLetters atomic.Int64
	// InFlightMessages is a level, not a sum.
	InFlightMessages atomic.Int64
}

var _ Observer = (*Counters)(nil)

// Sent implements Observer.
func (c *Counters) Sent(delivered, failed, retried int) {
	c.Delivered.Add(int64(delivered))
	if failed > 0 {
		c.Failed.Add(int64(failed))
	}
	if retried > 0 {
		c.Retried.Add(int64(retried))
	}
}

// Settled implements Observer.
func (c *Counters) Settled(messages int) { c.SettledMessages.Add(int64(messages)) }

// Parked implements Observer.
func (c *Counters) Parked(messages int) { c.ParkedMessages.Add(int64(messages)) }

// Dead implements Observer.
func (c *Counters) Dead(messages int) { c.DeadLetters.Add(int64(messages)) }

// InFlight implements Observer.
func (c *Counters) InFlight(messages int) { c.InFlightMessages.Store(int64(messages)) }

type nobody struct{}

func (nobody) Sent(int, int, int) {}
func (nobody) Settled(int)        {}
func (nobody) Parked(int)         {}
func (nobody) Dead(int)           {}
func (nobody) InFlight(int)       {}
