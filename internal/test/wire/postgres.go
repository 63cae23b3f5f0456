package wire

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Postgres starts the proxy before a database of PostgreSQL's protocol and returns the URL that leads through it. A trip ends with a
// Sync, or is a simple query.
func (p *Proxy) Postgres(t TB, direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.before(t, u.Host, p.postgres)
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

func (p *Proxy) postgres(client, server net.Conn) {
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
			if kind == 'N' && p.Heard != nil {
				var notice pgproto3.NoticeResponse
				if notice.Decode(raw[5:]) == nil {
					p.Heard(notice.Message)
				}
			}
			if kind == 'Z' {
				p.Answer.Store(max(p.Answer.Load(), n))
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
		f := Pass
		if kind == 'S' || kind == 'Q' {
			f = p.next(trip)
			if p.Delay != nil {
				time.Sleep(p.Delay())
			}
		}
		switch f {
		case Refuse:
			if _, err := client.Write(p.refusal(byte(status.Load()))); err != nil {
				return
			}
			trip = nil
			continue
		case CutBefore:
			return
		case CutAfter:
			lose.Store(true)
		case Late, CutLate:
			if f == CutLate {
				_ = client.Close()
			}
			<-p.let
			held.Store(true)
			lose.Store(true)
		}
		if _, err := server.Write(trip); err != nil {
			return
		}
		if f == CutLate {
			<-p.done
			return
		}
		trip = nil
	}
}
