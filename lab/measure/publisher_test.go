package measure

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// writes counts the bytes that reach the socket.
type writes struct {
	net.Conn
	mu    sync.Mutex
	sizes []int
	limit time.Time
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sizes = append(w.sizes, len(b))
	return len(b), nil
}

func (w *writes) all() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sizes)
}

func (w *writes) SetWriteDeadline(at time.Time) error {
	w.limit = at
	return nil
}

func (w *writes) Close() error { return nil }

func TestGatheringConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket := &writes{}
		g := newGatheringConn(socket)
		message := bytes.Repeat([]byte("x"), 300)
		for range 100 {
			if _, err := g.Write(message); err != nil {
				t.Fatal(err)
			}
		}
		if len(socket.all()) != 0 {
			t.Errorf("30,000 bytes were written in %d pieces before anything asked for them", len(socket.all()))
		}
		if err := g.Flush(); err != nil || len(socket.all()) != 1 || socket.all()[0] != 30_000 {
			t.Errorf("a flush wrote %v, %v", socket.all(), err)
		}
		for range 300 {
			_, _ = g.Write(message)
		}
		if len(socket.all()) != 2 || socket.all()[1] != gatherBytes {
			t.Errorf("90,000 bytes were written as %v", socket.all()[1:])
		}
		// No caller flushes the bytes that open a channel.
		time.Sleep(gatherFor)
		synctest.Wait()
		if len(socket.all()) != 3 || socket.all()[1]+socket.all()[2] != 90_000 {
			t.Errorf("a millisecond later: %v", socket.all()[1:])
		}
		_, _ = g.Write(message)
		if err := g.Close(); err != nil || len(socket.all()) != 4 || socket.limit.IsZero() {
			t.Errorf("closing wrote %v, with the deadline %v, %v", socket.all()[3:], socket.limit, err)
		}
	})
}

func TestGatheringConnFails(t *testing.T) {
	near, far := net.Pipe()
	_ = far.Close()
	g := newGatheringConn(near)
	_, _ = g.Write([]byte("x"))
	if err := g.Flush(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a flush to a closed connection: %v", err)
	}
	if _, err := g.Write([]byte("x")); err == nil {
		t.Error("a write after a failed flush says nothing")
	}
}

func TestOrderNumber(t *testing.T) {
	for content, want := range map[string]int{`{"n": 7, "order": "xx"}`: 7, `{"n": 123456, "order": ""}`: 123456, `{"n": , "order": ""}`: -1, `{"order": ""}`: -1, ``: -1, `{"n": 12`: -1} {
		if n, ok := orderNumber([]byte(content)); ok != (want >= 0) || ok && n != want {
			t.Errorf("%s has the number %d, %v", content, n, ok)
		}
	}
}
