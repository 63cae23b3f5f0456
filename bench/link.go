package bench

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
)

// link is the way to a broker that can be cut: a TCP proxy on a local port.
// While it is cut, connections are refused, as those to a dead server are.
type link struct {
	server  string // host:port
	addr    string // of the proxy
	running sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener          // nil while it is cut
	conns    map[net.Conn]struct{} // both ends of each connection
}

// newLink leads to the server of a sink URL. It returns nil where the sink does
// not use TCP.
func newLink(sinkURL string) (*link, error) {
	scheme, _, _ := strings.Cut(sinkURL, "://")
	port := map[string]string{"amqp": "5672", "nats": "4222"}[scheme]
	if port == "" {
		if strings.Contains(sinkURL, "://") {
			return nil, fmt.Errorf("the connection of a %s sink cannot be cut: use amqp://… or nats://…", scheme)
		}
		return nil, nil
	}
	u, err := url.Parse(sinkURL)
	if err != nil || strings.Contains(u.Host, ",") {
		return nil, fmt.Errorf("the outage needs a sink URL with one host")
	}
	l := &link{server: u.Host, addr: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	if u.Port() == "" {
		l.server = net.JoinHostPort(u.Hostname(), port)
	}
	return l, l.mend()
}

// reach changes a sink URL so that it leads through the link.
func (l *link) reach(sinkURL string) (string, error) {
	u, err := url.Parse(sinkURL)
	if err != nil {
		return "", err
	}
	u.Host = l.addr
	return u.String(), nil
}

// mend listens, on the same port as before.
func (l *link) mend() error {
	listener, err := net.Listen("tcp", l.addr)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener, l.addr = listener, listener.Addr().String()
	l.running.Go(func() { l.accept(listener) })
	return nil
}

// cut ends every connection and stops listening. It returns when both is done.
func (l *link) cut() {
	l.mu.Lock()
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}

func (l *link) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.forward(listener, client) })
	}
}

// forward passes bytes both ways until either end is closed.
func (l *link) forward(listener net.Listener, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer server.Close()
	l.mu.Lock()
	if l.listener != listener { // cut meanwhile
		l.mu.Unlock()
		return
	}
	l.conns[client], l.conns[server] = struct{}{}, struct{}{}
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = client.Close()
			_ = server.Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, client)
	delete(l.conns, server)
}
