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
	"github.com/penstock/penstock/internal/settings"
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
	// Lease is how long the lease lasts without a renewal.
	Lease time.Duration `yaml:"lease" default:"15s"`

	// MaxInFlight limits how many messages are fetched and not settled.
	MaxInFlight int `yaml:"max_in_flight" default:"32768" min:"1"`
	// MaxInFlightBytes limits the sum of their Size in bytes. A single message may
	// exceed it.
	MaxInFlightBytes int `yaml:"max_in_flight_bytes" default:"33554432" min:"1"`
	// MaxBatch is how many messages one Send gets at most.
	MaxBatch int `yaml:"max_batch" default:"512" min:"1"`
	// Senders is how many Sends run at a time at most.
	Senders int `yaml:"senders" default:"8" min:"1" max:"10000"`

	// Rate limits how many messages are sent, retries included, by this relay. Its zero value limits nothing; Per is a
	// second by default. Only a takeover by another relay begins a new burst.
	Rate penstock.Rate `yaml:",inline"`

	// PollMin and PollMax limit the pause between two fetches when no more messages
	// are waiting. It grows while none come. PollMax is 50 ms by default, or PollMin.
	PollMin time.Duration `yaml:"poll_min" default:"1ms"`
	PollMax time.Duration `yaml:"poll_max"`
	// SettleEvery is the shortest time between two durable writes of the cursor,
	// unless half of MaxInFlight waits for one.
	SettleEvery time.Duration `yaml:"settle_every" default:"50ms"`
	// RetryMin and RetryMax limit the growing delay before a refused message is
	// sent again. RetryMax is 5 minutes by default, or RetryMin.
	RetryMin time.Duration `yaml:"retry_min" default:"100ms"`
	RetryMax time.Duration `yaml:"retry_max"`
	// ParkAfter is how often a message is sent before it is parked, so that other
	// keys can continue. Parked messages are retried as well, up to MaxAttempts.
	ParkAfter int `yaml:"park_after" default:"3" min:"1" max:"10"`
	// SendTimeout ends a Send that the sink does not end.
	SendTimeout time.Duration `yaml:"send_timeout" default:"1m"`
	// DrainTimeout is how long Drain waits for running Sends. Then it gives them up.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"10s"`
}

// SetDefaults sets the fields that are zero.
func (c *Options) SetDefaults() {
	if c.Holder == "" {
		host, _ := os.Hostname() // without a host name, the pid must suffice
		c.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	c.PollMax = cmp.Or(c.PollMax, max(50*time.Millisecond, c.PollMin))
	c.RetryMax = cmp.Or(c.RetryMax, max(5*time.Minute, c.RetryMin))
	settings.Defaults(&c.Limits)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 25)
	if r := &c.Rate; r.Jobs > 0 {
		r.Per, r.Burst = cmp.Or(r.Per, time.Second), cmp.Or(r.Burst, 1)
	}
	c.OnDead = cmp.Or(c.OnDead, OnDeadContinue)
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
	if err := cmp.Or(c.Rate.Validate(), settings.Check(&c.Limits)); err != nil {
		return err
	}
	if c.Lease < time.Second { // a pause of the machine or the network is often longer, and then another relay takes over
		return &penstock.FieldError{Field: "lease", Problem: fmt.Sprintf("is %s", c.Lease), Hint: "use at least a second, such as 15*time.Second: a number alone counts nanoseconds"}
	}
	if c.MaxAge < 0 {
		return &penstock.FieldError{Field: "max_age", Problem: "is negative", Hint: "use a positive time, or 0 for no limit"}
	}
	if c.OnDead != OnDeadContinue && c.OnDead != OnDeadHold {
		return &penstock.FieldError{Field: "on_dead", Problem: fmt.Sprintf("is %q", c.OnDead), Hint: `use "continue" or "hold"`}
	}
	if err := c.Filter.Validate(); err != nil {
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
