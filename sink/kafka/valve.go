package kafka

import (
	"context"
	"net"
	"sync"
)

// dialFunc makes a connection to a broker.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// valve keeps a producer from writing to its brokers while it is shut. The library's own way
// (ManualFlushing) leaks. The goroutine that sends for a Flush may still look for more records when
// that Flush has returned, and takes those of the next flight. The zero value is open.
type valve struct {
	mu   sync.Mutex
	shut chan struct{} // nil when open, else closed by open
}

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut == nil {
		v.shut = make(chan struct{})
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut != nil {
		close(v.shut)
		v.shut = nil
	}
}

// wait returns when the valve is open. If the producer ends before, it fails.
func (v *valve) wait(ended <-chan struct{}) error {
	v.mu.Lock()
	shut := v.shut
	v.mu.Unlock()
	if shut == nil {
		return nil
	}
	select {
	case <-shut:
		return nil
	case <-ended:
		return net.ErrClosed
	}
}

// behindValve makes connections through which nothing is written while the
// producer's valve is shut.
func (p *producer) behindValve(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return valvedConn{conn, p}, nil
	}
}

type valvedConn struct {
	net.Conn
	producer *producer
}

func (c valvedConn) Write(b []byte) (int, error) {
	if err := c.producer.valve.wait(c.producer.ended); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
