package mysql_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// fault is what happens to a statement.
type fault int

const (
	pass      fault = iota
	cutBefore       // the connection is lost before the server sees it
	cutAfter        // it is lost when the server has done it, and its answer with it
	cutLate         // it is lost, and the server sees it when the test lets it
)

// wireProxy stands before a server and decides, for every statement, or text of several, what becomes of it.
type wireProxy struct {
	mu     sync.Mutex
	decide func(text []byte) fault
	trips  atomic.Int64
	let    chan struct{} // what is late go on
	done   chan struct{} // the server has done it
}

// through starts the proxy before a server and returns its address.
func (p *wireProxy) through(t testing.TB, host string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client, host)
		}
	}()
	return l.Addr().String()
}

// quit is a packet after which a server ends the connection, when it has done what came before.
var quit = []byte{1, 0, 0, 0, 1}

func (p *wireProxy) serve(client net.Conn, host string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var lose atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = client.Close() }()
		answer := make([]byte, 1<<16)
		for {
			n, err := server.Read(answer)
			if err != nil {
				return
			}
			if lose.Load() {
				continue
			}
			if _, err := client.Write(answer[:n]); err != nil {
				return
			}
		}
	}()
	for {
		packet := make([]byte, 4)
		if _, err := io.ReadFull(client, packet); err != nil {
			return
		}
		packet = append(packet, make([]byte, int(packet[0])|int(packet[1])<<8|int(packet[2])<<16)...)
		if _, err := io.ReadFull(client, packet[4:]); err != nil {
			return
		}
		f := pass
		if packet[3] == 0 && len(packet) > 4 && packet[4] == 3 { // COM_QUERY
			p.trips.Add(1)
			p.mu.Lock()
			if p.decide != nil {
				f = p.decide(packet[5:])
			}
			p.mu.Unlock()
		}
		switch f {
		case cutBefore:
			return
		case cutLate:
			lose.Store(true)
			_ = client.Close()
			<-p.let
		case cutAfter:
			lose.Store(true)
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
		if f == pass {
			continue
		}
		_, _ = server.Write(quit)
		<-ended
		if f == cutLate {
			close(p.done)
		}
		return
	}
}
