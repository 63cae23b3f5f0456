package storetest

import (
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// carrier reads and settles as a relay does that sends one batch at a time: it
// parks what is behind parked ones, and leaves the rest to decide.
type carrier struct {
	e     *env
	r     *reader
	limit driver.Limit
	// decide returns the verdict on a message that is sent; nil: it is delivered.
	decide func(m penstock.Message) driver.Verdict
	sent   []penstock.Message // delivered, in order
}

// step carries one batch; false means that there was none.
func (c *carrier) step() bool {
	b := c.r.fetch(c.limit)
	if len(b.Messages) == 0 {
		return false
	}
	waits := map[string]bool{}
	settled := delivered(b)
	for i, m := range b.Messages {
		v := driver.Verdict{}
		how := b.Order(i)
		switch {
		case how == driver.BehindParked, how == driver.InOrder && waits[m.Key]:
			v = behind
		case c.decide != nil:
			v = c.decide(m)
		}
		switch {
		case v.Outcome == driver.Delivered:
			c.sent = append(c.sent, m)
		case v.Outcome == driver.Parked, v.Hold:
			waits[m.Key] = how == driver.InOrder && m.Key != "" || waits[m.Key]
		}
		settled[0].Verdicts = append(settled[0].Verdicts, v)
	}
	c.e.Must(c.r.Settle(c.e.ctx, settled...), "Settle")
	return true
}

// until carries on until n messages were delivered, and expects no more.
func (c *carrier) until(n int) {
	c.e.Eventually(fmt.Sprintf("%d messages were delivered", n), func() bool {
		for c.step() {
		}
		return len(c.sent) >= n
	})
	if len(c.sent) > n {
		c.e.Fatalf("%d messages were delivered, want %d", len(c.sent), n)
	}
}

// parkAll refuses everything until nothing is left that is not parked.
func (c *carrier) parkAll() {
	c.decide = func(m penstock.Message) driver.Verdict { return refused(m, soon) }
	c.e.Eventually("everything is parked", func() bool {
		c.step()
		return c.e.subscriptionStatus(c.r.req).Backlog == 0
	})
	c.decide = nil
}

// wantKey expects that the messages of a key were delivered in this order.
func (c *carrier) wantKey(key string, want ...string) {
	var got []penstock.Message
	for _, m := range c.sent {
		if m.Key == key {
			got = append(got, m)
		}
	}
	c.e.wantInOrder(got, want...)
}
