package tcpproxy

// Moment is the place where a trap cuts.
type Moment uint8

const (
	// BeforeRequest: the request does not reach the server.
	BeforeRequest Moment = iota
	// BeforeAnswer: the request reaches the server, and its answer, or what else
	// the server says next, does not reach the client.
	BeforeAnswer
)

// trap waits for a request of some client.
type trap struct {
	at      Moment
	matches func(said []byte) bool
	sprung  chan struct{}
}

// Trap resets one connection as soon as a client says something that matches:
// before it reaches the server, or when the server begins to answer. matches is
// given what was read at once, under a lock. The channel is closed when the
// connection was reset. There is one trap at a time; a new one replaces it, and
// nil takes it away.
func (p *Proxy) Trap(at Moment, matches func(said []byte) bool) (sprung <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if matches == nil {
		p.trap = nil
		return nil
	}
	p.trap = &trap{at: at, matches: matches, sprung: make(chan struct{})}
	return p.trap.sprung
}

// Never resets each connection whose client says something that matches, before it reaches the server.
func (p *Proxy) Never(matches func(said []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.never = matches
}

// spare reports whether the bytes may pass, or resets their connection; p.mu is held.
func (p *Proxy) spare(l *link, d Direction, said []byte) bool {
	t := p.trap
	switch {
	case d == ToServer && p.never != nil && p.never(said):
		p.drop(l)
		return false
	case t == nil:
		return true
	case d == ToServer && l.trap != t && t.matches(said):
		l.trap = t
		if t.at == BeforeAnswer {
			return true
		}
	case d == ToServer || l.trap != t:
		return true
	}
	p.trap = nil
	p.drop(l)
	close(t.sprung)
	return false
}

// drop resets a connection; p.mu is held.
func (p *Proxy) drop(l *link) {
	delete(p.conns, l.client)
	delete(p.conns, l.server)
	reset(l.client)
	reset(l.server)
}
