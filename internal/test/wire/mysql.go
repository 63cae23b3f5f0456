package wire

import (
	"io"
	"net"
	"sync/atomic"
)

// MySQL starts the proxy before a server of MySQL's protocol and returns its address.
func (p *Proxy) MySQL(t TB, host string) string { return p.before(t, host, p.mysql) }

// quit is a packet after which a server ends the connection, when it has done what came before.
var quit = []byte{1, 0, 0, 0, 1}

func (p *Proxy) mysql(client, server net.Conn) {
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
		f := Pass
		if packet[3] == 0 && len(packet) > 4 && packet[4] == 3 { // COM_QUERY
			f = p.next(packet[5:])
		}
		switch f {
		case CutBefore:
			return
		case CutLate:
			lose.Store(true)
			_ = client.Close()
			<-p.let
		case CutAfter:
			lose.Store(true)
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
		if f == Pass {
			continue
		}
		_, _ = server.Write(quit)
		<-ended
		if f == CutLate {
			close(p.done)
		}
		return
	}
}
