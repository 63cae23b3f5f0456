package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are drawn from below the range from which the system takes the local
// ports of outgoing connections (32768 and up on Linux). Inside it, a client
// that keeps dialing a stopped server can be given the server's own port as
// its local one, and is then connected to itself.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// FreePort returns a port of 127.0.0.1 on which no process listens now. It is the process's until
// that ends: no other call is given it, in whatever process, while its server has yet to start or
// was killed.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if err = reserve(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d: %w", lowestPort, highestPort, err)
}

// reserved are kept open; the process's end closes them, however it ends.
var reserved struct {
	sync.Mutex
	conns []net.PacketConn
}

// reserve takes the UDP port of the same number, which none of the servers uses:
// unlike a file it is free again without help.
func reserve(port int) error {
	conn, err := net.ListenPacket("udp", loopback(port))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", loopback(port))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.conns = append(reserved.conns, conn)
	return nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
