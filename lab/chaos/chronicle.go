package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// event is a fault, or something else that can make a relay send again what it had sent. It has the
// time from its begin to its end, and the relays and subscriptions it concerned.
type event struct {
	Name   string
	Detail string
	blast
	From   time.Time
	Struck time.Time // of a sudden one: when the harm was done
	To     time.Time // zero: not over
}

// blast has the subscriptions and jobs that an event can disturb.
type blast struct {
	Routes []string // subscriptions
	Holder string   // only those that this relay holds; empty: any holder
	Sudden bool     // it does harm at one moment, and nothing more until its end
}

// subscriptions is the blast of a fault that strikes their holders.
func subscriptions(names ...string) blast { return blast{Routes: names} }

func (e *event) concerns(route string) bool { return slices.Contains(e.Routes, route) }

// strikes is like overlaps, for the time in which the event does harm.
func (e *event) strikes(from, to time.Time) bool {
	if e.Sudden && !e.Struck.IsZero() {
		return !e.From.After(to) && !e.Struck.Before(from)
	}
	return e.overlaps(from, to)
}

// overlaps reports whether some of the event lies between from and to.
func (e *event) overlaps(from, to time.Time) bool {
	return !e.From.After(to) && (e.To.IsZero() || !e.To.Before(from))
}

// chronicle has the events and their times, in memory and as a file.
type chronicle struct {
	start time.Time

	mu     sync.Mutex
	log    io.Writer
	events []*event
	counts map[string]int
}

func newChronicle(log io.Writer) *chronicle {
	return &chronicle{start: time.Now(), log: log, counts: map[string]int{}}
}

// begin notes the start of a fault.
func (c *chronicle) begin(name, detail string, b blast) *event {
	return c.note(name, detail, b, time.Now(), time.Time{})
}

// struck notes that a sudden fault has done its harm.
func (c *chronicle) struck(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.Struck = time.Now()
}

// end notes that a fault is over. It is counted if it happened; otherwise it
// explains nothing.
func (c *chronicle) end(e *event, happened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.To = time.Now()
	if happened {
		c.counts[e.Name]++
	} else {
		e.Routes = nil
	}
	fmt.Fprintf(c.log, "%s  %s %s is over after %s\n", c.at(e.To), e.Name, e.Detail, e.To.Sub(e.From).Round(time.Millisecond))
}

// note keeps an event that is not a fault: a takeover, a warning of a relay.
func (c *chronicle) note(name, detail string, b blast, from, to time.Time) *event {
	e := &event{Name: name, Detail: detail, blast: b, From: from, To: to}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	fmt.Fprintf(c.log, "%s  %s %s\n", c.at(from), name, detail)
	return e
}

// printf writes a line that is only for people.
func (c *chronicle) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.log, "%s  %s\n", c.at(time.Now()), fmt.Sprintf(format, args...))
}

// at is a moment as every text of the run writes it.
func (c *chronicle) at(t time.Time) string {
	if t.IsZero() {
		return "       -"
	}
	return fmt.Sprintf("%8.3fs", t.Sub(c.start).Seconds())
}

// faults counts the faults that happened.
func (c *chronicle) faults() (n int) {
	for _, count := range c.counted() {
		n += count
	}
	return n
}

// counted is how often each fault happened.
func (c *chronicle) counted() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// all is every event so far.
func (c *chronicle) all() []*event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}
