package webhook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/penstock/penstock"
)

// piped opens a sink whose connections are pipes to serve, which owns its end. It does not use the
// network, so it runs in virtual time.
func piped(t *testing.T, cfg Config, serve func(conn net.Conn)) *Sink {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = "http://endpoint.test/hooks"
	}
	s, err := Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			serve(server)
		}()
		return client, nil
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := len(s.slots); n > 0 {
			t.Errorf("%d slots are taken by nobody", n)
		}
	})
	return s
}

// answering serves whole requests, one after another, with what answer writes.
func answering(answer func(req *http.Request, out io.Writer)) func(net.Conn) {
	return func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			answer(req, conn)
		}
	}
}

// untilClosed keeps the connection open as long as the client does.
func untilClosed(conn io.Writer) { _, _ = io.Copy(io.Discard, conn.(net.Conn)) }

func reply(status int, headers ...string) func(*http.Request, io.Writer) {
	return func(_ *http.Request, out io.Writer) {
		text := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: 0\r\n", status, http.StatusText(status))
		for _, h := range headers {
			text += h + "\r\n"
		}
		_, _ = io.WriteString(out, text+"\r\n")
	}
}

func message(id, key string) penstock.Message {
	return penstock.Message{ID: id, Key: key, Topic: "orders.placed", Payload: []byte("payload of " + id), CreatedAt: time.Unix(1_767_323_045, 0), Attempt: 1}
}

// one sends a message alone.
func one(t *testing.T, s *Sink, m penstock.Message) error {
	t.Helper()
	errs := s.Send(context.Background(), []penstock.Message{m})
	if errs == nil {
		return nil
	}
	if len(errs) != 1 || errs[0] == nil {
		t.Fatalf("Send of one message answered %v", errs)
	}
	return errs[0]
}

// kind is the relay's view of an error.
func kind(err error) string {
	after, asked := penstock.RetryDelay(err)
	switch {
	case err == nil:
		return "delivered"
	case penstock.IsPermanent(err):
		return "permanent"
	case penstock.IsUnavailable(err):
		return "unavailable"
	case asked:
		return "retry after " + after.String()
	}
	return "retry"
}

func wantKind(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := kind(err); got != want {
		t.Errorf("%s: %s (%v), want %s", what, got, err, want)
	}
}

func wantField(t *testing.T, what string, err error, name string) {
	t.Helper()
	var f *penstock.FieldError
	if !errors.As(err, &f) || f.Field != name || f.Hint == "" {
		t.Errorf("%s: %v, want an error of the field %s with a hint", what, err, name)
	}
}

type dialContext = func(ctx context.Context, network, address string) (net.Conn, error)

func countDials(dial dialContext, n *int) dialContext {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		*n++
		return dial(ctx, network, address)
	}
}
