// Package lines lends connections to the Sends of a sink. Each has one for itself, so that a Send that is
// given up breaks its connection and no other's.
package lines

import (
	"context"
	"net"
	"sync"
)

// Line is a connection with a Wire in it.
type Line interface {
	Close()
	Cut()
	IsCut() bool
}

// Pool keeps lines that no Send has. The zero value is empty.
type Pool[L Line] struct {
	mu     sync.Mutex
	idle   []L
	closed bool
}

// Use lends a line to do, which reports whether the line is broken. It makes one if all are lent, and cuts it when ctx
// ends. If a line is broken, the idle ones are given up too: they lead to the same server.
func (p *Pool[L]) Use(ctx context.Context, make func() L, do func(L) (broken bool)) {
	l, ok := p.take()
	if !ok {
		l = make()
	}
	stop := context.AfterFunc(ctx, l.Cut)
	broken := do(l)
	stop()
	p.give(l, broken || l.IsCut())
}

// take returns the line that was given back last, or false.
func (p *Pool[L]) take() (l L, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		l, ok = p.idle[n-1], true
		p.idle = p.idle[:n-1]
	}
	return l, ok
}

func (p *Pool[L]) give(l L, broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, l)
	if broken || p.closed {
		p.closeIdle()
	}
}

// Close closes the idle lines, and each that is given back later.
func (p *Pool[L]) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeIdle()
}

func (p *Pool[L]) closeIdle() {
	for _, l := range p.idle {
		l.Close()
	}
	p.idle = nil
}

// Wire is the network connection of a line. It can be cut at any time, also before there is one.
type Wire struct {
	mu   sync.Mutex
	conn net.Conn
	over bool
}

// Keep remembers the connection, unless the line was cut: then it closes it.
func (w *Wire) Keep(conn net.Conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn = conn; w.over {
		return conn.Close()
	}
	return nil
}

// Cut breaks the connection permanently.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over = true; w.conn != nil {
		_ = w.conn.Close()
	}
}

// IsCut reports whether Cut was called.
func (w *Wire) IsCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}
