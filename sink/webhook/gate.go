package webhook

import (
	"context"
	"sync"
)

// gate counts running Sends and, once closed, lets no more begin. It can end
// those that run.
type gate struct {
	mu      sync.Mutex
	running map[*pass]struct{}
	idle    chan struct{} // not nil once closed; closed itself when nothing runs
}

// pass is one running Send.
type pass struct{ cancel context.CancelFunc }

// enter returns nil once the gate is closed.
func (g *gate) enter(cancel context.CancelFunc) *pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		return nil
	}
	if g.running == nil {
		g.running = map[*pass]struct{}{}
	}
	p := &pass{cancel}
	g.running[p] = struct{}{}
	return p
}

func (g *gate) leave(p *pass) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, p)
	if g.idle != nil && len(g.running) == 0 {
		close(g.idle)
	}
}

// close returns a channel that is closed when nothing runs any more, and
// whether this was the first call.
func (g *gate) close() (idle <-chan struct{}, first bool) {
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

func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.idle != nil
}

// cancel ends what runs.
func (g *gate) cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.running {
		p.cancel()
	}
}
