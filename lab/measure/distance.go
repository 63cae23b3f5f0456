package measure

import (
	"io"
	"net"
	"net/url"
	"time"
)

// Distant puts a database further away: each round trip over the URL that it returns takes that much longer, and
// as much as before can be on the way. Only the session that asks has to wait for it on this machine.
func Distant(databaseURL string, roundTrip time.Duration) (far string, remove func(), err error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", nil, err
	}
	server := u.Host
	if u.Port() == "" {
		server = net.JoinHostPort(u.Hostname(), "5432")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				_ = near.Close()
				continue
			}
			go carry(there, near, roundTrip/2)
			go carry(near, there, roundTrip/2)
		}
	}()
	u.Host = l.Addr().String()
	return u.String(), func() { _ = l.Close() }, nil
}

// carry copies the bytes, each piece later by the given time.
func carry(to io.WriteCloser, from io.Reader, later time.Duration) {
	type piece struct {
		arrives time.Time
		text    []byte
	}
	way := make(chan piece, 4096)
	go func() {
		defer func() { _ = to.Close() }()
		for p := range way {
			time.Sleep(time.Until(p.arrives))
			if _, err := to.Write(p.text); err != nil {
				for range way { // until the other side is also closed
				}
				return
			}
		}
	}()
	defer close(way)
	for {
		text := make([]byte, 64<<10)
		n, err := from.Read(text)
		if n > 0 {
			way <- piece{time.Now().Add(later), text[:n]}
		}
		if err != nil {
			return
		}
	}
}
