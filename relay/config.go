package relay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Store has the methods of a driver.Store that a relay needs.
type Store interface {
	// Subscribe takes the lease. While it fails with penstock.ErrHeld the relay is on standby. After
	// any other error it logs that and tries again.
	Subscribe(ctx context.Context, req driver.Subscribe) (driver.Source, error)
	// Maintain does the outbox's maintenance, which frees space. The relay calls it
	// about once a second while it has the lease.
	Maintain(ctx context.Context, outbox string) error
}

// Options of a relay. The zero value is usable.
type Options struct {
	Limits
	// Holder names the relay in status. Default host/pid.
	Holder string
	// Start is where the subscription begins if there is none yet.
	Start driver.Start

	// MaxAttempts is how often a message is sent before it becomes a dead letter.
	// Negative means no limit. Default 25.
	MaxAttempts int
	// MaxAge is for how long a message is tried again. If it is refused this long
	// after its first refusal, it becomes a dead letter. Default 0, no limit.
	MaxAge time.Duration
	// OnDead decides about messages of the same key behind a dead letter.
	// Default OnDeadContinue.
	OnDead OnDead
	// Filter chooses the messages to send; the others are settled unsent.
	Filter penstock.Filter

	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Observer counts; may be nil.
	Observer Observer
}

// Limits of a relay. penstock.yaml has them under the same names. The zero value of
// each means its default.
type Limits struct {
	// Lease is how long the lease lasts without a renewal. Default driver.DefaultLease.
	Lease time.Duration `yaml:"lease"`

	// MaxInFlight limits how many messages are fetched and not settled. Default 32768.
	MaxInFlight int `yaml:"max_in_flight"`
	// MaxInFlightBytes limits the sum of their Size in bytes. A single message may
	// exceed it. Default 32 MiB.
	MaxInFlightBytes int `yaml:"max_in_flight_bytes"`
	// MaxBatch is how many messages one Send gets at most. Default 512.
	MaxBatch int `yaml:"max_batch"`
	// Senders is how many Sends run at a time at most. Default 8.
	Senders int `yaml:"senders"`

	// Rate limits how many messages are sent, retries included, by this relay. Its zero value limits nothing; Per is a
	// second by default. Only a takeover by another relay begins a new burst.
	Rate penstock.Rate `yaml:",inline"`

	// PollMin and PollMax limit the pause between two fetches when no more messages
	// are waiting. It grows while none come. Default 1 ms and 50 ms.
	PollMin time.Duration `yaml:"poll_min"`
	PollMax time.Duration `yaml:"poll_max"`
	// SettleEvery is the shortest time between two durable writes of the cursor,
	// unless half of MaxInFlight waits for one. Default 50 ms.
	SettleEvery time.Duration `yaml:"settle_every"`
	// RetryMin and RetryMax limit the growing delay before a refused message is
	// sent again. Default 100 ms and 5 minutes.
	RetryMin time.Duration `yaml:"retry_min"`
	RetryMax time.Duration `yaml:"retry_max"`
	// ParkAfter is how often a message is sent before it is parked, so that other
	// keys can continue. Default 3, at most penstock.MaxFailures.
	ParkAfter int `yaml:"park_after"`
	// SendTimeout ends a Send that the sink does not end. Default 1
	// minute.
	SendTimeout time.Duration `yaml:"send_timeout"`
	// DrainTimeout is how long Drain waits for running Sends. Then it gives them up.
	// Default 10 s.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
}

// leastLease is the shortest lease that can be renewed.
const leastLease = time.Millisecond

// SetDefaults sets the fields that are zero.
func (c *Options) SetDefaults() {
	if c.Holder == "" {
		host, _ := os.Hostname() // without a host name, the pid must suffice
		c.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	c.Lease = cmp.Or(c.Lease, driver.DefaultLease)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 32768)
	c.MaxInFlightBytes = cmp.Or(c.MaxInFlightBytes, 32<<20)
	c.MaxBatch = cmp.Or(c.MaxBatch, 512)
	c.Senders = cmp.Or(c.Senders, 8)
	if r := &c.Rate; r.Jobs > 0 {
		r.Per, r.Burst = cmp.Or(r.Per, time.Second), cmp.Or(r.Burst, 1)
	}
	c.PollMin = cmp.Or(c.PollMin, time.Millisecond)
	c.PollMax = cmp.Or(c.PollMax, max(50*time.Millisecond, c.PollMin))
	c.SettleEvery = cmp.Or(c.SettleEvery, 50*time.Millisecond)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, max(5*time.Minute, c.RetryMin))
	c.ParkAfter = cmp.Or(c.ParkAfter, 3)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 25)
	c.OnDead = cmp.Or(c.OnDead, OnDeadContinue)
	c.SendTimeout = cmp.Or(c.SendTimeout, time.Minute)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = &Counters{}
	}
}

// Validate returns a *penstock.FieldError for the first field that the relay cannot
// work with. It has the field's name in penstock.yaml. Call SetDefaults before.
func (c *Options) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"max_in_flight", c.MaxInFlight}, {"max_in_flight_bytes", c.MaxInFlightBytes}, {"max_batch", c.MaxBatch}, {"senders", c.Senders},
		{"park_after", c.ParkAfter},
	} {
		if f.value < 1 {
			return &penstock.FieldError{Field: f.name, Problem: "is negative", Hint: "use 1 or more, or 0 for the default"}
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"lease", c.Lease}, {"poll_min", c.PollMin}, {"poll_max", c.PollMax}, {"settle_every", c.SettleEvery}, {"retry_min", c.RetryMin},
		{"retry_max", c.RetryMax}, {"send_timeout", c.SendTimeout}, {"drain_timeout", c.DrainTimeout},
	} {
		if f.value <= 0 {
			return &penstock.FieldError{Field: f.name, Problem: "is negative", Hint: "use a positive time, or 0 for the default"}
		}
	}
	if c.Lease < leastLease {
		return &penstock.FieldError{Field: "lease", Problem: fmt.Sprintf("is %s", c.Lease), Hint: "use at least a millisecond, such as 15*time.Second: a number alone counts nanoseconds"}
	}
	if c.MaxAge < 0 {
		return &penstock.FieldError{Field: "max_age", Problem: "is negative", Hint: "use a positive time, or 0 for no limit"}
	}
	if c.ParkAfter > penstock.MaxFailures {
		return &penstock.FieldError{Field: "park_after", Problem: fmt.Sprintf("is more than %d", penstock.MaxFailures), Hint: "lower it: parked messages are retried as well, up to max_attempts"}
	}
	if c.OnDead != OnDeadContinue && c.OnDead != OnDeadHold {
		return &penstock.FieldError{Field: "on_dead", Problem: fmt.Sprintf("is %q", c.OnDead), Hint: `use "continue" or "hold"`}
	}
	if err := c.Filter.Validate(); err != nil {
		return err
	}
	if err := c.Rate.Validate(); err != nil {
		return err
	}
	if c.PollMax < c.PollMin {
		return &penstock.FieldError{Field: "poll_max", Problem: "is less than poll_min", Hint: "raise it or lower poll_min"}
	}
	if c.RetryMax < c.RetryMin {
		return &penstock.FieldError{Field: "retry_max", Problem: "is less than retry_min", Hint: "raise it or lower retry_min"}
	}
	return nil
}
