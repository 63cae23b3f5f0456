package webhook

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/store/sqlite"
)

// outbox is a relay between a SQLite database and a sink. It must be made in a
// synctest bubble.
type outbox struct {
	store *sqlite.Store
	stats relay.Counters
	stop  func()
}

// startRelay sends each message alone, as DESIGN.md recommends.
func startRelay(t *testing.T, sink driver.Sink, senders int) *outbox {
	t.Helper()
	ctx := context.Background()
	o := &outbox{store: sqlitetest.New(t)}
	must(t, o.store.CreateOutbox(ctx, "orders"))
	r, err := relay.New(o.store, "orders", "hooks", sink, relay.Options{Limits: relay.Limits{Senders: senders, MaxBatch: 1}, MaxAttempts: 6,
		Logger: slog.New(slog.DiscardHandler), Observer: &o.stats})
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	o.stop = sync.OnceFunc(func() {
		r.Drain()
		must(t, <-done)
	})
	t.Cleanup(o.stop)
	return o
}

func (o *outbox) publish(t *testing.T, msgs ...penstock.Message) {
	t.Helper()
	must(t, o.store.Publish(context.Background(), "orders", msgs...))
}

// settled waits in virtual time until n messages are delivered.
func (o *outbox) settled(t *testing.T, n int64, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); o.stats.Delivered.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages are delivered after %v", o.stats.Delivered.Load(), n, within)
		}
	}
}

func (o *outbox) dead(t *testing.T) []admin.DeadLetter {
	t.Helper()
	letters, err := o.store.DeadLetters(context.Background(), admin.DeadLetterQuery{Outbox: "orders", Subscription: "hooks"})
	must(t, err)
	return letters
}

// deadLetter waits for the one expected dead letter, while other messages are answered.
func (o *outbox) deadLetter(t *testing.T, key string, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(time.Second) {
		letters := o.dead(t)
		switch {
		case len(letters) > 1 || len(letters) == 1 && letters[0].Message.Key != key:
			t.Fatalf("dead letters: %v", letters)
		case len(letters) == 1:
			return
		case time.Now().After(deadline):
			t.Fatalf("key %s has no dead letter after %v", key, within)
		}
		o.publish(t, penstock.Message{Topic: "t"})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A key whose requests hang, or make the endpoint close connections, spends its own attempts, and
// hardly affects the others.
func TestOneBadKeyStopsNoOther(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(out io.Writer)
	}{
		{"hangs", func(out io.Writer) { untilClosed(out) }},
		{"hangs up", func(out io.Writer) { _ = out.(net.Conn).Close() }},
		{"answers half", func(out io.Writer) {
			_, _ = io.WriteString(out, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			_ = out.(net.Conn).Close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, rounds = 20, 50
				s := piped(t, Config{}, answering(func(req *http.Request, out io.Writer) {
					if req.Header.Get(HeaderKey) == "bad" {
						c.bad(out)
						return
					}
					time.Sleep(20 * time.Millisecond)
					reply(204)(req, out)
				}))
				o := startRelay(t, s, 32)
				o.publish(t, penstock.Message{Key: "bad", Topic: "t"})
				for range rounds {
					for k := range keys {
						o.publish(t, penstock.Message{Key: fmt.Sprint("key-", k), Topic: "t"})
					}
					time.Sleep(20 * time.Millisecond)
				}
				// 50 rounds of 20 ms, and one pause of the subscription at most.
				o.settled(t, keys*rounds, time.Second)
				o.deadLetter(t, "bad", time.Hour)
				o.stop()
			})
		})
	}
}

// Twenty keys that hang at once are not an outage either once something else is answered. New
// messages do not wait until each of them was tried. A timeout shorter than response_timeout is
// the one that counts.
func TestManyThatHangStopNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hanging = 20
		var mu sync.Mutex
		var seen []string
		s := piped(t, Config{Timeout: 2 * time.Second}, answering(func(req *http.Request, out io.Writer) {
			key := req.Header.Get(HeaderKey)
			mu.Lock()
			seen = append(seen, key)
			mu.Unlock()
			if strings.HasPrefix(key, "hangs") {
				untilClosed(out)
				return
			}
			time.Sleep(20 * time.Millisecond)
			reply(204)(req, out)
		}))
		o := startRelay(t, s, 256)
		for i := range hanging {
			o.publish(t, penstock.Message{Key: fmt.Sprint("hangs-", i), Topic: "t"})
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		before := len(seen)
		mu.Unlock()
		o.publish(t, penstock.Message{Key: "well", Topic: "t"})
		o.settled(t, 1, time.Minute)
		mu.Lock()
		for i, key := range seen[before:] {
			if key == "well" {
				break
			}
			if i > 1 {
				t.Errorf("before the key that is well the endpoint got, again, %v", seen[before:])
				break
			}
		}
		mu.Unlock()
		for range 3 { // one request that is answered now and then is enough
			time.Sleep(time.Minute)
			o.publish(t, penstock.Message{Key: "well", Topic: "t"})
		}
		for n := int64(4); len(o.dead(t)) < hanging && n < 1000; n++ {
			o.publish(t, penstock.Message{Key: "well", Topic: "t"})
			o.settled(t, n+1, 10*time.Second)
			time.Sleep(time.Second)
		}
		if letters := o.dead(t); len(letters) != hanging {
			t.Errorf("%d dead letters, want those of the %d keys that hang", len(letters), hanging)
		}
		o.stop()
	})
}

// While the endpoint is away, in whatever way, nothing is counted against any message. When it is
// back everything is delivered, once and in order.
func TestDeadEndpointSpendsNoAttempts(t *testing.T) {
	for _, c := range []struct {
		name string
		dead func(net.Conn) // nil means that connections are refused
	}{
		{"refuses connections", nil},
		{"hangs up on everything", func(net.Conn) {}},
		{"hangs", func(conn net.Conn) { untilClosed(conn) }},
		{"speaks something else", func(conn net.Conn) {
			go untilClosed(conn)
			_, _ = io.WriteString(conn, "220 mail.test ESMTP\r\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, messages = 30, 300
				var away atomic.Bool
				var mu sync.Mutex
				var got []string
				s := piped(t, Config{}, func(conn net.Conn) {
					if away.Load() {
						c.dead(conn)
						return
					}
					answering(func(req *http.Request, out io.Writer) {
						if away.Load() {
							if c.dead != nil {
								c.dead(out.(net.Conn))
							}
							_ = out.(net.Conn).Close()
							return
						}
						mu.Lock()
						got = append(got, req.Header.Get(HeaderKey)+" "+req.Header.Get("N")+" "+req.Header.Get(HeaderAttempt))
						mu.Unlock()
						time.Sleep(20 * time.Millisecond)
						reply(204)(req, out)
					})(conn)
				})
				dial := s.transport.DialContext
				s.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					if away.Load() && c.dead == nil {
						return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
					}
					return dial(ctx, network, address)
				}
				o := startRelay(t, s, 32)
				for i := range messages {
					o.publish(t, penstock.Message{Key: fmt.Sprint("key-", i%keys), Topic: "t", Headers: map[string]string{"n": fmt.Sprint(i / keys)}})
				}
				time.Sleep(50 * time.Millisecond)
				away.Store(true)
				time.Sleep(10 * time.Minute)
				away.Store(false)
				o.settled(t, messages, 30*time.Second)
				o.stop()
				if n := o.stats.Failed.Load(); n > 0 {
					t.Errorf("%d attempts were counted", n)
				}
				last := map[string]string{}
				for _, line := range got {
					f := strings.Split(line, " ")
					if f[2] != "" {
						t.Errorf("%s came as attempt %s", line, f[2])
					}
					if previous := last[f[0]]; len(previous) > len(f[1]) || previous > f[1] && len(previous) == len(f[1]) {
						t.Errorf("%s came after %s", line, previous)
					}
					last[f[0]] = f[1]
				}
			})
		})
	}
}

// An endpoint that answers 429 with Retry-After gets no request until then, whatever the key, and no attempt is spent. Another
// endpoint of the same template gets its messages meanwhile.
func TestTooManyRequestsHoldTheEndpoint(t *testing.T) {
	for _, url := range []string{"http://endpoint.test/hooks", "http://endpoint.test/{topic}"} {
		t.Run(url, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, messages, pause = 100, 500, 10 * time.Minute
				var mu sync.Mutex
				var paused time.Time
				requests := map[string]int{}
				var attempts []string
				s := piped(t, Config{URL: url}, answering(func(req *http.Request, out io.Writer) {
					mu.Lock()
					if paused.IsZero() && len(attempts) >= 100 {
						paused = time.Now()
					}
					hold := req.URL.Path != "/other" && !paused.IsZero() && time.Since(paused) < pause
					if hold {
						requests["held"]++
					} else {
						requests[req.URL.Path]++
						attempts = append(attempts, req.Header.Get(HeaderAttempt))
					}
					left := pause - time.Since(paused)
					mu.Unlock()
					time.Sleep(20 * time.Millisecond)
					if hold {
						reply(429, fmt.Sprintf("Retry-After: %d", int(left.Seconds()+1)))(req, out)
						return
					}
					reply(204)(req, out)
				}))
				o := startRelay(t, s, 32)
				for i := range messages {
					o.publish(t, penstock.Message{Key: fmt.Sprint("key-", i%keys), Topic: "t"})
				}
				time.Sleep(pause / 2)
				mu.Lock()
				if n := requests["held"]; n < 1 || n > 32 {
					t.Errorf("%d requests were answered 429 in five minutes, want one for each sender at most", n)
				}
				mu.Unlock()
				others := 0
				if strings.Contains(url, "{") {
					others = 50
					for i := range others {
						o.publish(t, penstock.Message{Key: fmt.Sprint("other-", i%7), Topic: "other"})
					}
					time.Sleep(time.Minute)
					mu.Lock()
					if n := requests["/other"]; n != others {
						t.Errorf("%d of %d messages reached the other endpoint", n, others)
					}
					mu.Unlock()
				}
				o.settled(t, int64(messages+others), pause+pause/2)
				o.stop()
				for _, attempt := range attempts {
					if attempt != "" {
						t.Fatalf("a message came as attempt %s", attempt)
					}
				}
			})
		})
	}
}
