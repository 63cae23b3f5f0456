package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testcerts"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/redis"
)

const (
	password = "hush-hush-4711"
	wrong    = "wrong-4712"
	maxBulk  = 2 << 20
)

var topics = []string{"orders.placed", "orders.cancelled"}

// A user who may add to streams and nothing else.
func TestConformance(t *testing.T) {
	conformance(t, nil, redis.Config{}, "user relay on >"+password+" ~* -@all +xadd", nil)
}

// TLS, with certificates on both sides, and a user who may ask.
func TestConformanceTLS(t *testing.T) {
	authority := testcerts.New(t)
	cert, client := authority.Server(t, "redis.example", "127.0.0.1"), authority.Client(t)
	port, err := testserver.FreePort()
	check(t, err)
	cfg := redis.Config{TLS: redis.TLSConfig{CAFile: authority.CAFile, CertFile: client.CertFile, KeyFile: client.KeyFile, ServerName: "redis.example"}}
	conformance(t, &port, cfg, "user relay on >"+password+" ~* +@all", sinktest.Transport,
		fmt.Sprintf("tls-port %d", port), "tls-ca-cert-file "+authority.CAFile, "tls-cert-file "+cert.CertFile, "tls-key-file "+cert.KeyFile, "tls-auth-clients yes")
}

func conformance(t *testing.T, tlsPort *int, cfg redis.Config, user string, only []string, conf ...string) {
	server := testserver.StartRedis(t, append(conf, user, fmt.Sprintf("proto-max-bulk-len %d", maxBulk))...)
	reader := goredis.NewClient(&goredis.Options{Addr: server.Address, Protocol: 2})
	t.Cleanup(func() { check(t, reader.Close()) })
	behind, scheme := server.Address, "redis"
	if tlsPort != nil {
		behind, scheme = fmt.Sprintf("127.0.0.1:%d", *tlsPort), "rediss"
	}
	sinktest.Run(t, sinktest.Harness{
		Features: sinktest.Features{ReadBack: true, Network: true, Durable: true, Routes: true, Refuses: true, Secrets: true},
		Only:     only,
		New: func(t *testing.T) *sinktest.Destination {
			check(t, reader.FlushAll(t.Context()).Err())
			for _, topic := range topics {
				check(t, reader.XGroupCreateMkStream(t.Context(), topic, "readers", "0").Err())
			}
			proxy := tcpproxy.New(t, behind)
			as := func(password string) func(*testing.T, *slog.Logger) driver.Sink {
				return func(t *testing.T, log *slog.Logger) driver.Sink {
					cfg := cfg
					cfg.URL, cfg.ExistingOnly = fmt.Sprintf("%s://relay:%s@%s", scheme, password, proxy.Addr()), true
					s, err := redis.Open(cfg, log)
					check(t, err)
					return s
				}
			}
			bad := []sinktest.Bad{
				{Name: "larger than the server takes", Message: penstock.Message{Topic: topics[0], Payload: make([]byte, maxBulk+1)}},
				{Name: "no topic"},
				{Name: "a header called payload", Message: penstock.Message{Topic: topics[0], Headers: map[string]string{"payload": "x"}}},
			}
			if tlsPort == nil { // this user may not ask how much it takes
				bad = bad[1:]
			}
			for i := range bad {
				bad[i].Message.ID = "bad"
			}
			return &sinktest.Destination{
				Topics: topics,
				Open:   as(password),
				Drain:  func(t *testing.T, n int) []sinktest.Received { return drain(t, reader, n) },
				Down:   proxy.Refuse, Up: proxy.Resume,
				Stall: func() { proxy.Stall(tcpproxy.Both) },
				Restart: func(t *testing.T) {
					check(t, server.Kill())
					check(t, server.Start())
				},
				Unroutable: &penstock.Message{ID: "lost", Topic: "invoices.sent", Payload: []byte("x")},
				Bad:        bad,
				Secrets:    []string{password, wrong},
				OpenDenied: as(wrong),
			}
		},
	})
}

// The consumer of the demo and the benchmark.
func TestReadBack(t *testing.T) {
	sinktest.ReadBack(t, redis.Driver, "redis://"+testserver.StartRedis(t).Address)
}

// drain takes n messages out of the streams, and those that are there beyond n.
func drain(t *testing.T, c *goredis.Client, n int) (got []sinktest.Received) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	defer cancel()
	for ctx.Err() == nil {
		before := len(got)
		for _, topic := range topics {
			entries, err := c.XRange(ctx, topic, "-", "+").Result()
			if err != nil {
				t.Error(err)
				return got
			}
			ids := make([]string, len(entries))
			for i, e := range entries {
				got, ids[i] = append(got, received(t, e)), e.ID
			}
			if len(ids) > 0 {
				check(t, c.XDel(ctx, topic, ids...).Err())
			}
		}
		if len(got) >= n && len(got) == before {
			return got
		}
	}
	return got
}

func received(t *testing.T, e goredis.XMessage) sinktest.Received {
	t.Helper()
	r := sinktest.Received{Headers: map[string]string{}}
	for field, value := range e.Values {
		r.Headers[field] = value.(string)
	}
	var err error
	r.CreatedAt, err = time.Parse(time.RFC3339Nano, r.Headers["penstock-created-at"])
	check(t, err)
	r.ID, r.Key, r.Topic, r.Payload = r.Headers["penstock-id"], r.Headers["penstock-key"], r.Headers["penstock-topic"], []byte(r.Headers["payload"])
	return r
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
