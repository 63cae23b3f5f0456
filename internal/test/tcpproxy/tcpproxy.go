// Package tcpproxy is a TCP proxy that misbehaves on request: it stands between
// a client under test and a real server and cuts, stalls or refuses
// connections, as networks do.
//
//	p := tcpproxy.New(t, "127.0.0.1:5672")
//	client.Dial(p.Addr())
//	p.Refuse() // every connection is reset, new ones are too
//	p.Resume() // and now it works again
//
// It can also cut at a chosen moment: between a request and its answer, where the
// client cannot know what became of it (trap.go).
package tcpproxy

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Direction is one way through the proxy.
type Direction uint8

const (
	// ToServer has the bytes of the client.
	ToServer Direction = 1 << iota
	// ToClient has the bytes of the server.
	ToClient
	// Both ways.
	Both = ToServer | ToClient
)

// Proxy forwards connections to one server.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	server  string
	changed *sync.Cond
	stalled Direction
	delay   time.Duration
	refuse  bool
	closed  bool
	dials   int
	conns   map[net.Conn]*link // both ends of each
	trap    *trap
	never   func(said []byte) bool
}

// link is one client's connection to the server.
type link struct {
	client, server net.Conn
	trap           *trap // the server's next bytes spring it
}

// TB has the methods of a test that New needs. Benchmarks also use the proxy, and the program that runs them
// must not link a testing package.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// New starts a proxy on a free local port in front of server ("host:port"). It
// is closed when the test ends.
func New(t TB, server string) *Proxy {
	t.Helper()
	p, err := Start(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Start is New for programs other than tests: the proxy runs until Close.
func Start(server string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("tcpproxy: %w", err)
	}
	p := &Proxy{listener: l, server: server, conns: map[net.Conn]*link{}}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets every connection that is open now. Bytes on their way are lost. New connections are
// served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

// Refuse cuts every connection and, until Resume, each new one as well.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	p.cut()
}

// Stall holds everything back in the given directions, as a dead network
// does: connections stay open, writes succeed while buffers last, nothing
// arrives.
func (p *Proxy) Stall(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = d
}

// Delay makes all bytes, either way, arrive that much later, and later bytes wait for them.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Resume ends Refuse, Stall and Delay; the bytes held back arrive.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.stalled, p.delay = false, 0, 0
	p.changed.Broadcast()
}

// Redirect has new connections go to another server, as an address that moves does.
func (p *Proxy) Redirect(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Accepted is how many connections clients have made so far, refused ones
// included.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// cut resets all connections; p.mu is held.
func (p *Proxy) cut() {
	for c := range p.conns {
		reset(c)
	}
	clear(p.conns)
	p.changed.Broadcast() // a held-back copy finds its connection closed
}

// Close cuts every connection and ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.cut()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	p.dials++
	refuse, address := p.refuse, p.server
	p.mu.Unlock()
	if refuse {
		reset(client)
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		reset(client)
		return
	}
	p.mu.Lock()
	if p.refuse || p.closed {
		p.mu.Unlock()
		reset(client)
		reset(server)
		return
	}
	l := &link{client: client, server: server}
	p.conns[client], p.conns[server] = l, l
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, ToServer) })
	both.Go(func() { p.copy(client, server, ToClient) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, server)
	p.mu.Unlock()
	_ = client.Close()
	_ = server.Close()
}

// copy forwards one direction until either side ends.
func (p *Proxy) copy(dst, src net.Conn, d Direction) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !p.pass(src, d, buf[:n]) {
				return
			}
			if _, werr := dst.Write(buf[:n]); werr != nil {
				reset(src)
				return
			}
		}
		if err == io.EOF {
			if tcp, ok := dst.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return
		}
		if err != nil {
			reset(dst)
			return
		}
	}
}

// pass waits while the direction is stalled or delayed, springs the trap, and
// reports whether the connection still stands.
func (p *Proxy) pass(c net.Conn, d Direction, said []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delay := p.delay; delay > 0 {
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
	}
	for p.stalled&d != 0 {
		if _, open := p.conns[c]; !open {
			return false
		}
		p.changed.Wait()
	}
	l, open := p.conns[c]
	return open && p.spare(l, d, said)
}

// reset closes with RST. The other side notices at once, and drops what it had not read.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
