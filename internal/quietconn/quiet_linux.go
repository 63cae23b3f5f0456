//go:build linux && !race

package quietconn

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// conn reads and writes with raw system calls; everything else is the connection's.
type conn struct {
	net.Conn
	raw syscall.RawConn
}

// quiet returns unknown kinds of connections unchanged.
func quiet(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn: // both are streams that do not block
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return c
	}
	return &conn{Conn: c, raw: raw}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waited := c.raw.Read(func(fd uintptr) (done bool) {
		n, done, err = once(syscall.SYS_READ, "read", fd, p)
		return done
	})
	switch {
	case waited != nil: // closed, or the deadline has passed
		return 0, waited
	case err != nil:
		return 0, c.failed("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	waited := c.raw.Write(func(fd uintptr) (done bool) {
		for n < len(p) {
			var wrote int
			if wrote, done, err = once(syscall.SYS_WRITE, "write", fd, p[n:]); !done || err != nil {
				return done
			}
			n += wrote
		}
		return true
	})
	if waited != nil {
		return n, waited
	}
	if err != nil {
		return n, c.failed("write", err)
	}
	return n, nil
}

// failed is the error that a plain connection returns: by its type, callers recognize it as a
// network error.
func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.RemoteAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// once makes one system call, and again if a signal interrupted it; done is false if the socket is
// not ready.
func once(call uintptr, name string, fd uintptr, p []byte) (n int, done bool, err error) {
	for {
		r, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		switch errno {
		case 0:
			return int(r), true, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, false, nil
		default:
			return 0, true, os.NewSyscallError(name, errno)
		}
	}
}
