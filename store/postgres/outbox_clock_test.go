package postgres_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
)

// The next relay takes at once the lease that one gave back when it was stopped, whatever the clock
// has shown before.
func leaseGivenBackBeforeTheClockIsSet(_ *testing.T, c *clocked) {
	for _, offset := range []time.Duration{0, -time.Hour, -2 * time.Hour} {
		c.set(offset)
		src, err := c.store.Subscribe(c.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
		c.Must(err)
		c.insert(c.Conn, "k", "one")
		c.wantDrain(src, "one")
		c.Must(src.Close(c.Ctx))
	}
}
