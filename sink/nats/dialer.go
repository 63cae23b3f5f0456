package nats

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A write is stuck if it takes longer than stuckAfter: the network's buffers are full and the
// server does not read.
const stuckAfter = 50 * time.Millisecond

// dialer knows the last connection, so a stuck write can be interrupted. The client library writes
// while it holds the lock that every other call needs, and has no context there.
type dialer struct {
	net.Dialer
	last atomic.Pointer[watchedConn]
}

// Dial is called by the client library to connect.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c := &watchedConn{Conn: conn}
	d.last.Store(c)
	return c, nil
}

// freeWriter waits for released, and until then closes a connection whose
// write is stuck. The library then makes a new one.
func (d *dialer) freeWriter(released <-chan struct{}) {
	tick := time.NewTicker(stuckAfter)
	defer tick.Stop()
	for {
		select {
		case <-released:
			return
		case <-tick.C:
			if c := d.last.Load(); c != nil && c.stuck() {
				_ = c.Close()
			}
		}
	}
}

type watchedConn struct {
	net.Conn
	mu      sync.Mutex
	writing time.Time // when the running write began; zero if there is none
}

func (c *watchedConn) Write(p []byte) (int, error) {
	c.mark(time.Now())
	defer c.mark(time.Time{})
	return c.Conn.Write(p)
}

func (c *watchedConn) mark(t time.Time) {
	c.mu.Lock()
	c.writing = t
	c.mu.Unlock()
}

func (c *watchedConn) stuck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.writing.IsZero() && time.Since(c.writing) > stuckAfter
}
