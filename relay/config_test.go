package relay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

func TestConfig(t *testing.T) {
	good := func() Config {
		return Config{Open: func(context.Context) (driver.Source, error) { return nil, nil }, Sink: discard(true)}
	}
	if _, err := New(good()); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for field, spoil := range map[string]func(*Config){
		"Open":                func(c *Config) { c.Open = nil },
		"Sink":                func(c *Config) { c.Sink = nil },
		"max_in_flight":       func(c *Config) { c.MaxInFlight = -1 },
		"max_in_flight_bytes": func(c *Config) { c.MaxInFlightBytes = -1 },
		"max_batch":           func(c *Config) { c.MaxBatch = -1 },
		"senders":             func(c *Config) { c.Senders = -1 },
		"max_age":             func(c *Config) { c.MaxAge = -1 },
		"park_after":          func(c *Config) { c.ParkAfter = penstock.MaxFailures + 1 },
		"on_dead":             func(c *Config) { c.OnDead = "stop" },
		"filter.topics":       func(c *Config) { c.Filter.Topics = []string{"a.>.b"} },
		"lease":               func(c *Config) { c.Lease = -1 },
		"poll_min":            func(c *Config) { c.PollMin = -1 },
		"poll_max":            func(c *Config) { c.PollMin, c.PollMax = time.Second, time.Millisecond },
		"settle_every":        func(c *Config) { c.SettleEvery = -1 },
		"retry_min":           func(c *Config) { c.RetryMin = -1 },
		"retry_max":           func(c *Config) { c.RetryMin, c.RetryMax = time.Second, time.Millisecond },
		"send_timeout":        func(c *Config) { c.SendTimeout = -1 },
		"drain_timeout":       func(c *Config) { c.DrainTimeout = -1 },
	} {
		cfg := good()
		spoil(&cfg)
		_, err := New(cfg)
		var bad *penstock.FieldError
		if !errors.As(err, &bad) || bad.Field != field || bad.Hint == "" {
			t.Errorf("%s: error %v, want one that names the field and the next step", field, err)
		}
	}
}
