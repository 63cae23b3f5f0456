package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
)

func TestOptions(t *testing.T) {
	start := func(opts Options) error {
		_, err := New(&outbox{}, "orders", "billing", discard(true), opts)
		return err
	}
	if err := start(Options{}); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for field, spoil := range map[string]func(*Options){
		"max_in_flight":       func(c *Options) { c.MaxInFlight = -1 },
		"max_in_flight_bytes": func(c *Options) { c.MaxInFlightBytes = -1 },
		"max_batch":           func(c *Options) { c.MaxBatch = -1 },
		"senders":             func(c *Options) { c.Senders = -1 },
		"max_age":             func(c *Options) { c.MaxAge = -1 },
		"park_after":          func(c *Options) { c.ParkAfter = penstock.MaxFailures + 1 },
		"on_dead":             func(c *Options) { c.OnDead = "stop" },
		"filter.topics":       func(c *Options) { c.Filter.Topics = []string{"a.>.b"} },
		"lease":               func(c *Options) { c.Lease = 999 * time.Millisecond },
		"poll_min":            func(c *Options) { c.PollMin = -1 },
		"poll_max":            func(c *Options) { c.PollMin, c.PollMax = time.Second, time.Millisecond },
		"settle_every":        func(c *Options) { c.SettleEvery = -1 },
		"retry_min":           func(c *Options) { c.RetryMin = -1 },
		"retry_max":           func(c *Options) { c.RetryMin, c.RetryMax = time.Second, time.Millisecond },
		"send_timeout":        func(c *Options) { c.SendTimeout = -1 },
		"drain_timeout":       func(c *Options) { c.DrainTimeout = -1 },
	} {
		var opts Options
		spoil(&opts)
		err := start(opts)
		var bad *penstock.FieldError
		if !errors.As(err, &bad) || bad.Field != field || bad.Hint == "" {
			t.Errorf("%s: error %v, want one that names the field and the next step", field, err)
		}
	}
}
