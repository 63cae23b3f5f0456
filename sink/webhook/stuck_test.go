package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// Endpoints that misbehave, each in one way. The message is not lost, and does not hold its worker
// longer than the configuration says.
func TestMisbehavingEndpoints(t *testing.T) {
	const timeout, response = 15 * time.Second, 10 * time.Second // the defaults
	say := func(text string) func(*http.Request, io.Writer) {
		return func(_ *http.Request, out io.Writer) { _, _ = io.WriteString(out, text) }
	}
	drip := func(text string, every time.Duration) func(io.Writer) {
		return func(out io.Writer) {
			for {
				if _, err := io.WriteString(out, text); err != nil {
					return
				}
				time.Sleep(every)
			}
		}
	}
	thenHang := func(text string) func(*http.Request, io.Writer) {
		return func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, text)
			untilClosed(out)
		}
	}
	thenHangUp := func(text string) func(*http.Request, io.Writer) {
		return func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, text)
			_ = out.(net.Conn).Close()
		}
	}
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		want  string
		says  string
		after time.Duration // exactly
	}{
		{"never answers", answering(thenHang("")), "unavailable", "timeout awaiting response headers", response},
		{"never reads", func(net.Conn) { time.Sleep(time.Hour) }, "unavailable", "no complete answer within 15s", timeout},
		{"reads a byte a second", func(conn net.Conn) {
			for {
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, "unavailable", "no complete answer within 15s", timeout},
		{"hangs in the status line", answering(thenHang("HTTP/1.1 2")), "unavailable", "timeout awaiting response headers", response},
		{"drips headers", answering(func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\n")
			drip("X: y\r\n", time.Second)(out)
		}), "unavailable", "timeout awaiting response headers", response},
		{"sends headers without end", answering(func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\n")
			drip("X: "+strings.Repeat("y", 1000)+"\r\n", 0)(out)
		}), "unavailable", "server response headers exceeded", 0},
		{"sends one header without end", answering(func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nX: ")
			drip(strings.Repeat("y", 1000), 0)(out)
		}), "unavailable", "server response headers exceeded", 0},
		{"sends early hints without end", answering(func(_ *http.Request, out io.Writer) {
			drip("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0)(out)
		}), "unavailable", "", 0},
		{"200 and a body without end", answering(func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\n\r\n")
			drip(strings.Repeat("y", 1000), 0)(out)
		}), "delivered", "", 0},
		{"500 and a body without end", answering(func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 500 Oops\r\n\r\n")
			drip(strings.Repeat("y", 1000), 0)(out)
		}), "retry", strings.Repeat("y", 200) + `…"`, 0},
		{"200 and a body that drips", answering(func(_ *http.Request, out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\n\r\n")
			drip("y", time.Second)(out)
		}), "unavailable", "the answer 200 broke off", timeout},
		{"200 and half a body, then nothing", answering(thenHang("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")), "unavailable", "the answer 200 broke off", timeout},
		{"200 and half a body, then the end", answering(thenHangUp("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")), "unavailable", "unexpected EOF", 0},
		{"200 and half a chunk", answering(thenHangUp("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf")), "unavailable", "unexpected EOF", 0},
		{"400 and half a body, then nothing", answering(thenHang("HTTP/1.1 400 Bad\r\nContent-Length: 10\r\n\r\nhalf")), "permanent", `400 Bad Request: "half"`, timeout},
		{"half the headers, then the end", answering(thenHangUp("HTTP/1.1 200 OK\r\nContent-Le")), "unavailable", "transport connection broken", 0},
		{"hangs up on the request", answering(thenHangUp("")), "unavailable", "EOF", 0},
		{"hangs up at once", func(net.Conn) {}, "unavailable", "", 0},
		{"speaks something else", answering(thenHangUp("SSH-2.0-OpenSSH_9.2\r\n")), "unavailable", "malformed HTTP", 0},
		{"contradicts itself about the length", answering(say("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")), "unavailable", "", 0},
		{"a negative length", answering(say("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")), "unavailable", "", 0},
		{"switches protocols", answering(say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")), "retry", "101 Switching Protocols", 0},
		{"a status out of this world", answering(say("HTTP/1.1 999 Denied\r\nContent-Length: 0\r\n\r\n")), "retry", "answered 999", 0},
		{"says yes before it has read", func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 10))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			untilClosed(conn)
		}, "delivered", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := piped(t, Config{}, func(conn net.Conn) {
					go func() { // ends handlers that wait for the client
						<-t.Context().Done()
						_ = conn.Close()
					}()
					c.serve(conn)
				})
				began := time.Now()
				err := one(t, s, message("m", "k"))
				wantKind(t, c.name, err, c.want)
				if err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error %q does not say %q", err, c.says)
				}
				if took := time.Since(began); took != c.after {
					t.Errorf("it took %v, want %v", took, c.after)
				}
				time.Sleep(2 * time.Hour) // running handlers end
			})
		})
	}
}

// A TLS handshake that never finishes has a separate timeout.
func TestHandshakeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, Config{URL: "https://endpoint.test/"}, func(conn net.Conn) { untilClosed(conn) })
		began := time.Now()
		err := one(t, s, message("m", "k"))
		wantKind(t, "a handshake that hangs", err, "unavailable")
		if took := time.Since(began); took != 5*time.Second || !strings.Contains(err.Error(), "TLS handshake timeout") {
			t.Errorf("it took %v: %v", took, err)
		}
	})
}

// A worker waits for a slot no longer than its context.
func TestHangingRequestsHoldTheirSlotsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, Config{Concurrency: 2}, answering(func(_ *http.Request, out io.Writer) { untilClosed(out) }))
		msgs := make([]penstock.Message, 6)
		for i := range msgs {
			msgs[i] = message(fmt.Sprint(i), "")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 11*time.Second)
		defer cancel()
		began := time.Now()
		errs := s.Send(ctx, msgs)
		if took := time.Since(began); took != 11*time.Second {
			t.Errorf("Send took %v", took)
		}
		for i, err := range errs {
			wantKind(t, msgs[i].ID, err, "unavailable")
			if i >= 2 && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// A message that hangs while others are answered is to blame at its first attempt, even if timeout
// ends the wait long before response_timeout would.
func TestShortTimeoutIsLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, Config{Timeout: 2 * time.Second}, answering(func(req *http.Request, out io.Writer) {
			if req.Header.Get(HeaderKey) == "hangs" {
				untilClosed(out)
				return
			}
			time.Sleep(1500 * time.Millisecond)
			reply(204)(req, out)
		}))
		errs := s.Send(t.Context(), []penstock.Message{message("1", "hangs"), message("2", "")})
		wantKind(t, "the one that hangs", errs[0], "retry")
		wantKind(t, "the other one", errs[1], "delivered")
	})
}

// A request that the relay ends says nothing about its message, even if others
// are answered.
func TestCancelledBlamesNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := piped(t, Config{}, answering(func(req *http.Request, out io.Writer) {
			if req.Header.Get(HeaderKey) == "hangs" {
				untilClosed(out)
				return
			}
			time.Sleep(7 * time.Second)
			reply(204)(req, out)
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		errs := s.Send(ctx, []penstock.Message{message("1", "hangs"), message("2", "")})
		wantKind(t, "the one that hangs", errs[0], "unavailable")
		wantKind(t, "the other one", errs[1], "delivered")
		if !errors.Is(errs[0], context.DeadlineExceeded) {
			t.Errorf("%v does not say why", errs[0])
		}
	})
}
