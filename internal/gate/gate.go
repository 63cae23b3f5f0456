// Package gate counts operations, to close a sink: no more begin, and running ones are waited for
// or cancelled.
package gate

import (
	"context"
	"fmt"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Gate is open until Close. The zero value is ready to use, by many goroutines.
type Gate struct {
	mu      sync.Mutex
	running map[*Pass]struct{}
	idle    chan struct{} // not nil once closed; closed itself when nothing runs
}

// Pass is a running operation.
type Pass struct {
	gate   *Gate
	cancel context.CancelFunc
}

// Enter lets an operation begin; give its Pass back with Leave. Once the gate is closed it returns
// nil. CancelAll calls cancel, which is nil if there is another way to end the operation.
func (g *Gate) Enter(cancel context.CancelFunc) *Pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		return nil
	}
	if g.running == nil {
		g.running = map[*Pass]struct{}{}
	}
	p := &Pass{gate: g, cancel: cancel}
	g.running[p] = struct{}{}
	return p
}

// Leave ends the pass. Call it once.
func (p *Pass) Leave() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, p)
	if g.idle != nil && len(g.running) == 0 {
		close(g.idle)
	}
}

// Send is the frame of a sink's Send: send, which notes a verdict on each message, has a context that CancelAll ends. closed
// is the error of the messages once the gate is closed, also of those that are Unavailable because CancelAll has ended them.
func (g *Gate) Send(ctx context.Context, msgs []penstock.Message, closed error, send func(ctx context.Context, errs []error)) []error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pass := g.Enter(cancel)
	if pass == nil {
		return driver.SendError(msgs, closed)
	}
	defer pass.Leave()
	errs := make([]error, len(msgs))
	send(ctx, errs)
	ended, failed := ctx.Err() != nil && g.Closed(), false
	for i, err := range errs {
		failed = failed || err != nil
		if ended && penstock.IsUnavailable(err) {
			errs[i] = closed
		}
	}
	if failed {
		return errs
	}
	return nil
}

// Close lets no more begin. It returns a channel that is closed when no operation runs any more,
// and whether this was the first call.
func (g *Gate) Close() (idle <-chan struct{}, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		return g.idle, false
	}
	g.idle = make(chan struct{})
	if len(g.running) == 0 {
		close(g.idle)
	}
	return g.idle, true
}

// CloseSink closes the sink of that name, once. It waits for running operations until ctx ends, and then
// cancels them. In the end it calls release.
func (g *Gate) CloseSink(ctx context.Context, name string, release func()) error {
	idle, first := g.Close()
	if !first {
		return nil
	}
	defer release()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		g.CancelAll()
		return fmt.Errorf("close %s sink: messages were not confirmed in time and will be sent again: %w", name, context.Cause(ctx))
	}
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.idle != nil
}

// CancelAll cancels running operations; each must still call Leave.
func (g *Gate) CancelAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.running {
		if p.cancel != nil {
			p.cancel()
		}
	}
}
