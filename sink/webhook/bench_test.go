package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/webhook"
)

const (
	benchKeys    = 200
	benchLatency = 20 * time.Millisecond
	benchRound   = 20_000 // messages; about two seconds
)

// BenchmarkRelay sends messages of 200 keys from memory to an endpoint that takes 20 ms to answer.
// It compares that with 200 goroutines that call the same HTTP client in a loop. One op is one
// message. The two take turns within the run, so a busy machine slows both.
func BenchmarkRelay(b *testing.B) {
	for _, v := range []struct {
		name           string
		senders, batch int // of the relay; 0 means its defaults
		wholeLanes     bool
	}{
		{"each-alone", 256, 1, false},
		{"relay-defaults", 0, 0, false},
		{"whole-lanes", 0, 0, true}, // were it an InOrderSink
	} {
		b.Run(v.name, func(b *testing.B) {
			endpoint := slowEndpoint(b)
			sink, err := webhook.Open(webhook.Config{
				URL: "http://" + endpoint + "/hooks", AllowPrivate: true, Secrets: []webhook.Secret{signingSecret},
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer sink.Close(context.Background())
			var to driver.Sink = sink
			if v.wholeLanes {
				to = inOrder{sink}
			}
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchKeys}, Timeout: 15 * time.Second}
			defer client.CloseIdleConnections()
			var spent [2]time.Duration
			var mallocs [2]uint64
			sent := 0
			for sent < b.N {
				n := min(b.N-sent, benchRound)
				for i, run := range []func(int) time.Duration{
					func(n int) time.Duration { return throughRelay(b, to, n, v.senders, v.batch) },
					func(n int) time.Duration { return throughClient(b, client, "http://"+endpoint+"/hooks", n) },
				} {
					before := mallocCount()
					spent[i] += run(n)
					mallocs[i] += mallocCount() - before
				}
				sent += n
			}
			b.ReportMetric(float64(sent)/spent[0].Seconds(), "relay-req/s")
			b.ReportMetric(float64(sent)/spent[1].Seconds(), "client-req/s")
			b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "ratio")
			b.ReportMetric(float64(mallocs[0])/float64(sent), "relay-allocs/req")
			b.ReportMetric(float64(mallocs[1])/float64(sent), "client-allocs/req")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// throughRelay returns how long n messages take from the relay's start to the
// last confirm.
func throughRelay(b *testing.B, sink driver.Sink, n, senders, batch int) time.Duration {
	ctx := b.Context()
	store := sqlitetest.New(b)
	check(b, store.CreateOutbox(ctx, "orders"))
	payload := bytes.Repeat([]byte("x"), 200)
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{Key: "customer-" + strconv.Itoa(i%benchKeys), Topic: "order.placed", Payload: payload}
	}
	check(b, store.Publish(ctx, "orders", msgs...))
	done := &confirms{left: int64(n), all: make(chan struct{})}
	r, err := relay.New(store, "orders", "hooks", sink, relay.Options{Limits: relay.Limits{Senders: senders, MaxBatch: batch}, Logger: slog.New(slog.DiscardHandler), Observer: done})
	check(b, err)
	result := make(chan error, 1)
	start := time.Now()
	go func() { result <- r.Run(ctx) }()
	<-done.all
	spent := time.Since(start)
	r.Drain()
	check(b, <-result)
	return spent
}

// throughClient is the upper limit: only the client.
func throughClient(b *testing.B, client *http.Client, url string, n int) time.Duration {
	payload := bytes.Repeat([]byte("x"), 200)
	var next atomic.Int64
	var workers sync.WaitGroup
	start := time.Now()
	for range benchKeys {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(payload))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/octet-stream")
				req.Header.Set("Idempotency-Key", "orders-"+strconv.FormatInt(i, 10))
				res, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
	}
	workers.Wait()
	return time.Since(start)
}

// confirms waits for the relay to deliver everything.
type confirms struct {
	relay.Counters
	left int64
	all  chan struct{}
}

func (c *confirms) Sent(s relay.Send) {
	if left := atomic.AddInt64(&c.left, -int64(s.Delivered)); left == 0 && s.Delivered > 0 {
		close(c.all)
	}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// slowEndpoint answers every request after benchLatency. It does not use net/http, to leave the
// processor to the client.
func slowEndpoint(b *testing.B) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(b, err)
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerSlowly(conn)
		}
	}()
	return l.Addr().String()
}

func answerSlowly(conn net.Conn) {
	defer conn.Close()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	for in := bufio.NewReader(conn); ; {
		length := 0
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return
			}
			if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := in.Discard(length); err != nil {
			return
		}
		time.Sleep(benchLatency)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

func mallocCount() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
