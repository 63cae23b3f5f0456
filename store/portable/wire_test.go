package portable_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// fault is what happens to a round trip.
type fault int

const (
	pass        fault = iota
	refuse            // the server never sees it: the client gets an error that asks for another try
	cutBefore         // the connection is lost before the server sees it
	cutAfter          // it is lost when the server has done it, and its answer with it
	kindOfFault = cutAfter + 1
	late        = kindOfFault // the server sees it when the test lets it, and the client never hears of it
	cutLate     = late + 1    // the same, but the connection is lost at once
)

// wireProxy stands before a server and decides, for every round trip, what becomes of it.
type wireProxy struct {
	trips  atomic.Int64 // so many Syncs and simple queries
	answer atomic.Int64 // bytes of the largest answer to one
	faults [cutLate + 1]atomic.Int64
	mu     sync.Mutex
	heard  func(notice string) // what the server says beside its answers
	decide func(trip []byte) fault
	delay  func() time.Duration // of each round trip
	let    chan struct{}        // what is late go on
	done   chan struct{}        // the server has done it
	closed atomic.Int64         // so many connections come to nothing
}

func (p *wireProxy) next(trip []byte) fault {
	p.trips.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := pass
	if p.decide != nil {
		f = p.decide(trip)
	}
	p.faults[f].Add(1)
	return f
}

// through starts the proxy before a database and returns the URL that leads through it.
func (p *wireProxy) through(t testing.TB, direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	host := u.Host
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
			if p.closed.Add(-1) >= 0 {
				_ = client.Close()
				continue
			}
			go p.serve(client, host)
		}
	}()
	u.Host = l.Addr().String()
	return u.String()
}

// message reads one of the protocol, whole; the first that a client sends has no type.
func message(r io.Reader, typed bool) (kind byte, raw []byte, err error) {
	head := make([]byte, 4)
	if typed {
		head = make([]byte, 5)
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[len(head)-4:])
	raw = append(head, make([]byte, n-4)...)
	_, err = io.ReadFull(r, raw[len(head):])
	return head[0], raw, err
}

func (p *wireProxy) serve(client net.Conn, host string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var lose, held atomic.Bool // the next answer; it is of what was late
	var status atomic.Int32    // of the transaction, as ReadyForQuery says
	go func() {
		defer func() { _ = client.Close() }()
		for n := int64(0); ; {
			kind, raw, err := message(server, true)
			if err != nil {
				return
			}
			n += int64(len(raw))
			if kind == 'N' && p.heard != nil {
				var notice pgproto3.NoticeResponse
				if notice.Decode(raw[5:]) == nil {
					p.heard(notice.Message)
				}
			}
			if kind == 'Z' {
				p.answer.Store(max(p.answer.Load(), n))
				n = 0
				status.Store(int32(raw[5]))
			}
			if lose.Load() {
				if kind == 'Z' {
					if held.Load() {
						close(p.done)
					}
					return
				}
				continue
			}
			if _, err := client.Write(raw); err != nil {
				return
			}
		}
	}()
	_, trip, err := message(client, false)
	if err != nil {
		return
	}
	if _, err := server.Write(trip); err != nil {
		return
	}
	trip = nil
	for {
		kind, raw, err := message(client, true)
		if err != nil {
			return
		}
		trip = append(trip, raw...)
		if kind != 'S' && kind != 'Q' && kind != 'p' && kind != 'X' {
			continue
		}
		f := pass
		if kind == 'S' || kind == 'Q' {
			f = p.next(trip)
			if p.delay != nil {
				time.Sleep(p.delay())
			}
		}
		switch f {
		case refuse:
			state := byte(status.Load())
			if state == 'T' {
				state = 'E'
			}
			answer, _ := (&pgproto3.ErrorResponse{Severity: "ERROR", Code: "40001", Message: "Restart read required"}).Encode(nil)
			answer, _ = (&pgproto3.ReadyForQuery{TxStatus: state}).Encode(answer)
			if _, err := client.Write(answer); err != nil {
				return
			}
			trip = nil
			continue
		case cutBefore:
			return
		case cutAfter:
			lose.Store(true)
		case late, cutLate:
			if f == cutLate {
				_ = client.Close()
			}
			<-p.let
			held.Store(true)
			lose.Store(true)
		}
		if _, err := server.Write(trip); err != nil {
			return
		}
		if f == cutLate {
			<-p.done
			return
		}
		trip = nil
	}
}

// skipPooled skips a test that PgBouncer does not let happen. The URL of withservers -pooled has this parameter.
func skipPooled(t *testing.T, url, why string) {
	if isPooled(url) {
		t.Skip("behind a pooler,", why)
	}
}

func isPooled(url string) bool { return strings.Contains(url, "default_query_exec_mode=exec") }
