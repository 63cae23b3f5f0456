// Package gate counts what runs, so that a sink can be closed: nothing more
// begins, and what runs is waited for or ended.
package gate

import (
	"context"
	"sync"
)

// Gate is open until Close. The zero value is ready to use, by many goroutines.
type Gate struct {
	mu      sync.Mutex
	running map[*Pass]struct{}
	idle    chan struct{} // not nil once closed; closed itself when nothing runs
}

// Pass is one that runs.
type Pass struct {
	gate   *Gate
	cancel context.CancelFunc
}

// Enter lets one more begin; its Pass has to be given back with Leave. Once the
// gate is closed it returns nil. Cancel is called by CancelAll; nil where there
// is another way to end what runs.
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

// Leave ends the pass; to be called once.
func (p *Pass) Leave() {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, p)
	if g.idle != nil && len(g.running) == 0 {
		close(g.idle)
	}
}

// Close lets no more begin. It returns a channel that is closed when nothing
// runs any more, and whether this was the first call.
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

// Closed reports whether Close was called.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.idle != nil
}

// CancelAll tells what runs to end; each still has to Leave.
func (g *Gate) CancelAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.running {
		if p.cancel != nil {
			p.cancel()
		}
	}
}
