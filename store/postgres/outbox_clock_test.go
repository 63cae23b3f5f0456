package postgres_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
)

// What a relay gave back when it was stopped, the next one takes at once, whatever the clock
// has shown before.
func TestLeaseGivenBackBeforeTheClockIsSet(t *testing.T) {
	c := newClocked(t)
	for _, offset := range []time.Duration{0, -time.Hour, -2 * time.Hour} {
		c.set(offset)
		src, err := c.store.Subscribe(c.Ctx, penstock.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
		c.Must(err)
		c.insert(c.Conn, "k", "one")
		c.wantDrain(src, "one")
		c.Must(src.Close(c.Ctx))
	}
}
