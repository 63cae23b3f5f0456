package webhook

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
)

// These tests decide who is to blame for a request without an answer.
func TestSilence(t *testing.T) {
	const long = 5 * time.Second
	run := func(what string, want bool, history func(s *silence) bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s := newSilence(long)
			time.Sleep(time.Second)
			if got := history(s); got != want {
				t.Errorf("%s: the message is to blame: %v, want %v", what, got, want)
			}
		})
	}
	fails := func(s *silence, id string, after time.Duration) bool {
		began := time.Now()
		time.Sleep(after)
		return s.about(id, began)
	}
	run("nobody is ever answered", false, func(s *silence) bool {
		return fails(s, "a", time.Millisecond) || fails(s, "a", 2*long) || fails(s, "b", 2*long) || fails(s, "a", time.Millisecond)
	})
	run("a connection breaks in the midst of answers", false, func(s *silence) bool {
		s.broken("b", time.Now())
		began := time.Now()
		time.Sleep(time.Millisecond)
		s.broken("b", time.Now())
		return s.about("a", began)
	})
	run("somebody was answered before the wait", false, func(s *silence) bool {
		s.broken("b", time.Now())
		return fails(s, "a", 2*long)
	})
	run("somebody was answered early in the wait", false, func(s *silence) bool {
		began := time.Now()
		time.Sleep(long / 2)
		s.broken("b", time.Now())
		time.Sleep(long)
		return s.about("a", began)
	})
	run("somebody was answered late in the wait", true, func(s *silence) bool {
		began := time.Now()
		time.Sleep(long)
		s.broken("b", time.Now())
		time.Sleep(time.Second)
		return s.about("a", began)
	})
	run("it fails again, and others were answered in between", true, func(s *silence) bool {
		fails(s, "a", 0)
		time.Sleep(time.Second)
		s.broken("b", time.Now())
		return fails(s, "a", time.Second)
	})
	run("one that was under way when it failed was answered", false, func(s *silence) bool {
		other := time.Now()
		time.Sleep(time.Millisecond)
		fails(s, "a", 0)
		time.Sleep(time.Second)
		s.broken("b", other)
		return fails(s, "a", time.Second)
	})
	run("each failure needs an answer of its own", false, func(s *silence) bool {
		fails(s, "a", 0)
		time.Sleep(time.Second)
		s.broken("b", time.Now())
		fails(s, "a", time.Second)
		return fails(s, "a", time.Second)
	})
	run("it was answered itself in between", false, func(s *silence) bool {
		fails(s, "a", 0)
		time.Sleep(time.Second)
		s.broken("a", time.Now())
		return fails(s, "a", time.Second)
	})
	run("another one failed before", false, func(s *silence) bool {
		fails(s, "b", 0)
		time.Sleep(time.Second)
		s.broken("c", time.Now())
		return fails(s, "a", time.Second)
	})
}

// The memory of an outage is bounded.
func TestSilenceForgets(t *testing.T) {
	s := newSilence(time.Second)
	for i := range 2 * maxUnanswered {
		s.about(fmt.Sprint(i), time.Now())
	}
	if n := len(s.unanswered); n != maxUnanswered {
		t.Errorf("%d ids are remembered", n)
	}
	for i := range 2 * maxUnanswered {
		s.broken(fmt.Sprint(i), time.Now())
	}
	if n := len(s.unanswered); n != 0 || s.count.Load() != 0 {
		t.Errorf("%d ids are remembered after their answers", n)
	}
}

// A message that makes the endpoint close connections is not tried on all of them.
func TestReplaysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 50
		poisoned := 0
		s := piped(t, Config{}, answering(func(req *http.Request, out io.Writer) {
			if req.Header.Get(HeaderIdempotencyKey) == "poison" {
				poisoned++
				_ = out.(net.Conn).Close()
				return
			}
			time.Sleep(time.Second)
			reply(204)(req, out)
		}))
		warmUp(t, s, idle)
		wantKind(t, "poison", one(t, s, message("poison", "")), "unavailable")
		if poisoned != 1+replaysFromPool+1 { // the last one on a new connection
			t.Errorf("the endpoint was hit %d times", poisoned)
		}
	})
}

// An endpoint that restarts closes all connections, and the next request gets a new one, without
// an error.
func TestRestartIsNotNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 50
		generation := 1
		s := piped(t, Config{}, func(conn net.Conn) {
			born := generation
			answering(func(req *http.Request, out io.Writer) {
				if generation != born { // as if it had closed the connection just now
					_ = out.(net.Conn).Close()
					return
				}
				time.Sleep(time.Second)
				reply(204)(req, out)
			})(conn)
		})
		warmUp(t, s, idle)
		generation++
		wantKind(t, "after a restart", one(t, s, message("m", "")), "delivered")
	})
}

// warmUp makes n idle connections.
func warmUp(t *testing.T, s *Sink, n int) {
	t.Helper()
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = message(fmt.Sprint("warm-", i), "")
	}
	if errs := s.Send(t.Context(), msgs); errs != nil {
		t.Fatal(errs)
	}
	synctest.Wait()
}
