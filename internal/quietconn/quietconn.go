// Package quietconn makes connections that do not wake Go's monitor thread.
//
// net.Conn announces every read and write to the scheduler as a system call that may block. The
// first one after a pause wakes the thread that watches such calls (sysmon). That thread then
// sleeps in steps of 20 µs and looks around. A process that exchanges some thousand short messages
// a second with a server, and is idle in between, spends a third of its CPU time on that. But Go's
// sockets do not block: a call that has nothing to do says so and the poller waits. So no thread
// needs to watch these calls.
package quietconn

import (
	"context"
	"net"
)

// Dial connects, as net.Dialer.DialContext does.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Wrap makes connections of dial quiet on systems where that is known to work: on Linux.
// Deadlines, errors and Close are those of the connection.
func Wrap(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return quiet(conn), nil
	}
}
