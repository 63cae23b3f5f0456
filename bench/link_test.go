package bench

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

func TestLinkIsCutAndMended(t *testing.T) {
	l, err := newLink("nats://user@" + echo(t) + "?subject=x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cut)
	through, err := l.reach("nats://user@example.org:1?subject=x")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(through)
	if err != nil || u.User.Username() != "user" || u.Query().Get("subject") != "x" {
		t.Fatalf("the URL through the link is %q, %v", through, err)
	}
	talk := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // rather than hang
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := talk()
	l.cut()
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that was cut gave %d bytes, %v", n, err)
	}
	if c, err := net.Dial("tcp", u.Host); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling while the link is cut gave %v, %v", c, err)
	}
	if err := l.mend(); err != nil {
		t.Fatal(err)
	}
	talk()
}

func TestLinkOnlyWhereThereIsTCP(t *testing.T) {
	for _, url := range []string{"embedded", "embedded:/tmp/x", "discard", "stdout"} {
		if l, err := newLink(url); l != nil || err != nil {
			t.Errorf("%s: %v, %v", url, l, err)
		}
	}
	for _, url := range []string{"amqps://host", "nats://a,b", "tls://host"} {
		if _, err := newLink(url); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}
