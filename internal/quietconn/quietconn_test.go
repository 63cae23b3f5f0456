package quietconn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/quietconn"
)

// pair connects a quiet connection with a plain one.
func pair(t *testing.T, network, address string) (quiet, plain net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	quiet, err = quietconn.Wrap((&net.Dialer{}).DialContext)(t.Context(), network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if plain, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = quiet.Close(), plain.Close() })
	return quiet, plain
}

// Data that exceeds the socket's buffers arrives whole, in both directions at once.
func TestManyBytes(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			quiet, plain := pair(t, network, address)
			want := make([]byte, 20<<20)
			for i := range want {
				want[i] = byte(rand.Uint32())
			}
			failed := make(chan error, 3)
			send := func(c net.Conn) {
				n, err := c.Write(want)
				if err == nil && n != len(want) {
					err = io.ErrShortWrite
				}
				failed <- err
			}
			go send(quiet)
			go send(plain)
			there := make([]byte, len(want))
			go func() {
				_, err := io.ReadFull(plain, there)
				failed <- err
			}()
			back := make([]byte, len(want))
			if _, err := io.ReadFull(quiet, back); err != nil {
				t.Error(err)
			}
			for range 3 {
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(there, want) || !bytes.Equal(back, want) {
				t.Error("what arrived is not what was sent")
			}
		})
	}
}

// A connection ends, and its calls give up, like those of a plain one.
func TestEnds(t *testing.T) {
	buf := make([]byte, 10)
	t.Run("the other side closes", func(t *testing.T) {
		quiet, plain := pair(t, "tcp", "127.0.0.1:0")
		_, _ = plain.Write([]byte("last"))
		_ = plain.Close()
		if got, err := io.ReadAll(quiet); string(got) != "last" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
	t.Run("the other side resets", func(t *testing.T) {
		quiet, plain := pair(t, "tcp", "127.0.0.1:0")
		_ = plain.(*net.TCPConn).SetLinger(0)
		_ = plain.Close()
		var network *net.OpError // so callers know that trying again may help
		if _, err := quiet.Read(buf); !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &network) || network.Op != "read" {
			t.Errorf("a read says %v", err)
		}
		if _, err := quiet.Write(buf); !errors.Is(err, syscall.EPIPE) || !errors.As(err, &network) || network.Op != "write" {
			t.Errorf("a write says %v", err)
		}
	})
	t.Run("a deadline passes", func(t *testing.T) {
		quiet, _ := pair(t, "tcp", "127.0.0.1:0")
		_ = quiet.SetDeadline(time.Now().Add(time.Millisecond))
		_, err := quiet.Read(buf)
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("a read says %v", err)
		}
		n, err := quiet.Write(make([]byte, 20<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 20<<20 {
			t.Errorf("a write wrote %d and says %v", n, err)
		}
	})
	t.Run("it is closed while it is read", func(t *testing.T) {
		quiet, _ := pair(t, "tcp", "127.0.0.1:0")
		read := make(chan error)
		go func() {
			_, err := quiet.Read(buf)
			read <- err
		}()
		_ = quiet.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the read says %v", err)
		}
		if _, err := quiet.Write(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write says %v", err)
		}
	})
}

func TestNothingToReadOrWrite(t *testing.T) {
	quiet, _ := pair(t, "tcp", "127.0.0.1:0")
	if n, err := quiet.Read(nil); n != 0 || err != nil {
		t.Errorf("reading nothing: %d, %v", n, err)
	}
	if n, err := quiet.Write(nil); n != 0 || err != nil {
		t.Errorf("writing nothing: %d, %v", n, err)
	}
}

func TestDialFails(t *testing.T) {
	failed := errors.New("no route")
	dial := quietconn.Wrap(func(context.Context, string, string) (net.Conn, error) { return nil, failed })
	if c, err := dial(t.Context(), "tcp", "x"); c != nil || err != failed {
		t.Errorf("got %v, %v", c, err)
	}
}
