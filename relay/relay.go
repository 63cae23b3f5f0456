// Package relay carries the messages of one subscription from a source to a
// sink: fetched ahead of sending, in lanes by key, and settled once the sink has
// confirmed them. See DESIGN.md beside this file.
package relay

import (
	"context"
	"errors"
	"sync"
)

// Relay runs one subscription.
type Relay struct {
	cfg      Config
	drain    chan struct{}
	drainOne sync.Once
}

// New checks cfg and returns a relay that waits for Run.
func New(cfg Config) (*Relay, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, drain: make(chan struct{})}, nil
}

// Drain makes Run finish: nothing more is fetched, what is fetched is sent as
// long as the sink takes it, what was confirmed is settled, the lease is given
// back and Run returns nil. Messages that wait for another attempt, or for a
// sink that is down, are left to the next relay. Drain returns at once; a second
// call does nothing.
func (r *Relay) Drain() { r.drainOne.Do(func() { close(r.drain) }) }

// Run relays until Drain, then returns nil, or until ctx ends, then returns its
// error: running Sends are cancelled and what is not settled comes back to the
// next relay. A database or broker that fails does not end it. Call it once.
func (r *Relay) Run(ctx context.Context) error {
	return errors.New("the pump follows in the next commit")
}
