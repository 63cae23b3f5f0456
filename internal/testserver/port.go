package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn from below the range from which the system takes the local
// ports of outgoing connections (32768 and up on Linux). Inside it, a client
// that keeps dialing a stopped server can be given the server's own port as
// its local one, and is then connected to itself.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// FreePort returns a port of 127.0.0.1 on which nobody listens now.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		var l net.Listener
		if l, err = net.Listen("tcp", loopback(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d: %w", lowestPort, highestPort, err)
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
