// Package wire has a proxy that stands before a database and knows where a round trip of its protocol ends. It loses the trip
// that a test names, before the server has seen it, after it has done it, or so that it comes late. tcpproxy knows bytes only.
package wire

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// TB has the methods of a test that a proxy needs. The program of benchmarks has a proxy too, and must not link a testing package.
type TB interface {
	Fatal(args ...any)
	Cleanup(f func())
}

// Fault is an accident of a round trip.
type Fault int

const (
	Pass      Fault = iota
	Refuse          // PostgreSQL only: the server never sees it: the client gets one of YugabyteDB's errors that ask for another try
	CutBefore       // the connection is lost before the server sees it
	CutAfter        // it is lost when the server has done it, and its answer with it
	Late            // PostgreSQL only: the server sees it when the test lets it, and the client never hears of it
	CutLate         // the same, but the connection is lost at once
	faults
)

// Proxy decides about every round trip.
type Proxy struct {
	Trips  atomic.Int64        // how many were asked for
	Answer atomic.Int64        // bytes of PostgreSQL's largest answer to one
	Closed atomic.Int64        // this many connections fail
	Heard  func(notice string) // what PostgreSQL says next to its answers
	Delay  func() time.Duration

	mu     sync.Mutex
	decide func(trip []byte) Fault
	counts [faults]atomic.Int64
	let    chan struct{} // lets late trips continue
	done   chan struct{} // the server has done it
	letIt  sync.Once
}

// New is a proxy that lets everything pass.
func New() *Proxy { return &Proxy{let: make(chan struct{}), done: make(chan struct{})} }

// Decide makes the function decide from now on, one trip after another; nil lets all pass.
func (p *Proxy) Decide(decide func(trip []byte) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Once has a fault happen to the first trip with the text in it, and then reports those that follow.
func (p *Proxy) Once(f Fault, text string, then func(trip []byte)) {
	lost := false
	p.Decide(func(trip []byte) Fault {
		if !lost && bytes.Contains(trip, []byte(text)) {
			lost = true
			return f
		}
		if lost && then != nil {
			then(trip)
		}
		return Pass
	})
}

// Let lets a late trip continue, if it has not.
func (p *Proxy) Let() { p.letIt.Do(func() { close(p.let) }) }

// Arrive is Let, and waits until the server has done the late work.
func (p *Proxy) Arrive() {
	p.Let()
	<-p.done
}

// Happened is how often a fault was decided on.
func (p *Proxy) Happened(f Fault) int64 { return p.counts[f].Load() }

// Some is one of the faults, now and then.
func Some(rnd *rand.Rand, kinds ...Fault) Fault {
	if rnd.IntN(6) > 0 {
		return Pass
	}
	return kinds[rnd.IntN(len(kinds))]
}

func (p *Proxy) next(trip []byte) Fault {
	p.Trips.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := Pass
	if p.decide != nil {
		f = p.decide(trip)
	}
	p.counts[f].Add(1)
	return f
}

// before starts the proxy before a server and returns its address. Whatever serve returns from, both connections end then.
func (p *Proxy) before(t TB, host string, serve func(client, server net.Conn)) string {
	addr, end, err := p.listen(host, serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	t.Cleanup(p.Let)
	return addr
}

// listen is before without a test: end stops new connections.
func (p *Proxy) listen(host string, serve func(client, server net.Conn)) (addr string, end func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if p.Closed.Add(-1) >= 0 {
				_ = client.Close()
				continue
			}
			go func() {
				defer func() { _ = client.Close() }()
				server, err := net.Dial("tcp", host)
				if err != nil {
					return
				}
				defer func() { _ = server.Close() }()
				serve(client, server)
			}()
		}
	}()
	return l.Addr().String(), func() { _ = l.Close() }, nil
}
