package kafka

import "sync"

// gate counts running Sends and, once closed, lets no more begin.
type gate struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // not nil once closed; closed itself when nothing runs
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle != nil {
		return false
	}
	g.running++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.idle != nil && g.running == 0 {
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
	if g.running == 0 {
		close(g.idle)
	}
	return g.idle, true
}
