package tcpproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// counter is a server that answers every line with the number of lines so far.
type counter struct {
	mu    sync.Mutex
	lines []string
	grew  chan struct{}
}

func (c *counter) serve(t *testing.T) (addr string) {
	t.Helper()
	c.grew = make(chan struct{}, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.answer(conn)
		}
	}()
	return l.Addr().String()
}

func (c *counter) answer(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewScanner(conn); in.Scan(); {
		c.mu.Lock()
		c.lines = append(c.lines, in.Text())
		n := len(c.lines)
		c.mu.Unlock()
		c.grew <- struct{}{}
		if _, err := fmt.Fprintln(conn, n); err != nil {
			return
		}
	}
}

func ask(t *testing.T, conn net.Conn, line string) error {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	_, err := bufio.NewReader(conn).ReadString('\n')
	return err
}

// A trap lets everything pass until the request it waits for, cuts that
// connection once, and decides whether the server has heard the request.
func TestTrap(t *testing.T) {
	for _, c := range []struct {
		at    Moment
		heard int
	}{{BeforeRequest, 1}, {BeforeAnswer, 2}} {
		t.Run(fmt.Sprint(c.at), func(t *testing.T) {
			var server counter
			p := New(t, server.serve(t))
			sprung := p.Trap(c.at, func(said []byte) bool { return bytes.Contains(said, []byte("commit")) })
			dial := func() net.Conn {
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			}
			conn, other := dial(), dial()
			if err := ask(t, conn, "insert"); err != nil {
				t.Fatalf("the trap does not wait for its request: %v", err)
			}
			<-server.grew
			if err := ask(t, conn, "commit"); err == nil {
				t.Fatal("the request was answered")
			}
			<-sprung
			if c.at == BeforeAnswer {
				<-server.grew
			}
			if err := ask(t, other, "commit"); err != nil {
				t.Errorf("a second connection was cut too: %v", err)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if heard := len(server.lines) - 1; heard != c.heard {
				t.Errorf("the server heard %q", server.lines)
			}
		})
	}
}

// Bytes that must never pass do not reach the server, again and again, and no other connection notices.
func TestNever(t *testing.T) {
	var server counter
	p := New(t, server.serve(t))
	p.Never(func(said []byte) bool { return bytes.Contains(said, []byte("commit")) })
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	other := dial()
	for range 2 {
		if err := ask(t, dial(), "commit"); err == nil {
			t.Error("the request was answered")
		}
		if err := ask(t, other, "insert"); err != nil {
			t.Errorf("a second connection was cut too: %v", err)
		}
		<-server.grew
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if len(server.lines) != 2 {
		t.Errorf("the server heard %q", server.lines)
	}
}
