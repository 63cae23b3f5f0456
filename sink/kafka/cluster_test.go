package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/sink/kafka"
)

// cluster is brokers in this process, each behind a proxy: they give clients the proxy's address.
type cluster struct {
	*kfake.Cluster
	opts    []kfake.Opt
	ports   []int
	proxies []*tcpproxy.Proxy
}

func startCluster(tb testing.TB, brokers int, opts ...kfake.Opt) *cluster {
	tb.Helper()
	c := &cluster{opts: opts}
	for range brokers {
		port, err := testserver.FreePort()
		check(tb, err)
		c.ports = append(c.ports, port)
		c.proxies = append(c.proxies, tcpproxy.New(tb, fmt.Sprintf("127.0.0.1:%d", port)))
	}
	c.start(tb)
	tb.Cleanup(func() { c.Close() })
	return c
}

func (c *cluster) start(tb testing.TB) {
	tb.Helper()
	next := 0
	listen := func(network, _ string) (net.Listener, error) {
		i := next
		next++
		l, err := net.Listen(network, fmt.Sprintf("127.0.0.1:%d", c.ports[i]))
		if err != nil {
			return nil, err
		}
		return behind{l, c.proxies[i].Addr()}, nil
	}
	var err error
	c.Cluster, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(len(c.ports)), kfake.ListenFn(listen)}, c.opts...)...)
	check(tb, err)
}

// behind is a listener that goes by the address of the proxy in front of it.
type behind struct {
	net.Listener
	addr string
}

func (b behind) Addr() net.Addr {
	addr, _ := net.ResolveTCPAddr("tcp", b.addr) // host and port as numbers: it cannot fail
	return addr
}

func (c *cluster) each(do func(*tcpproxy.Proxy)) {
	for _, p := range c.proxies {
		do(p)
	}
}

// keepUnanswered makes the brokers leave produce requests unanswered until the test ends; asked is
// closed when the first has arrived.
func (c *cluster) keepUnanswered(tb testing.TB) (asked <-chan struct{}) {
	arrived, end := make(chan struct{}), make(chan struct{})
	tb.Cleanup(func() { close(end) })
	var first sync.Once
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		first.Do(func() { close(arrived) })
		c.SleepControl(func() { <-end })
		return nil, nil, false
	})
	return arrived
}

func (c *cluster) url() string { return "kafka://" + c.proxies[0].Addr() }

// open opens a sink on the cluster.
func (c *cluster) open(tb testing.TB, change func(*kafka.Config)) *kafka.Sink {
	tb.Helper()
	cfg := unhurried(kafka.Config{URL: c.url()})
	if change != nil {
		change(&cfg)
	}
	return open(tb, cfg)
}

// unhurried keeps a busy machine from deciding a test.
func unhurried(cfg kafka.Config) kafka.Config {
	cfg.DeliveryTimeout, cfg.ConnectTimeout = 2*sinktest.Patience, sinktest.Patience
	return cfg
}

func open(tb testing.TB, cfg kafka.Config) *kafka.Sink {
	tb.Helper()
	s, err := kafka.Open(cfg, slog.New(slog.DiscardHandler))
	check(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
		defer cancel()
		check(tb, s.Close(ctx))
	})
	return s
}

// reader reads topics with the library, from their beginning.
type reader struct {
	client *kgo.Client
	topics []string
	next   map[string]map[int32]int64
}

func newReader(tb testing.TB, topics []string, opts ...kgo.Opt) *reader {
	tb.Helper()
	client, err := kgo.NewClient(append(opts, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))...)
	check(tb, err)
	tb.Cleanup(client.Close)
	r := &reader{client: client, topics: topics, next: map[string]map[int32]int64{}}
	for _, topic := range topics {
		r.next[topic] = map[int32]int64{}
	}
	return r
}

// records waits until n more are there and returns all records that were there at the last read.
func (r *reader) records(tb testing.TB, n int) []*kgo.Record {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	defer cancel()
	var got []*kgo.Record
	for ctx.Err() == nil {
		ends, err := kadm.NewClient(r.client).ListEndOffsets(ctx, r.topics...)
		if err != nil || ends.Error() != nil {
			select { // the broker is coming back
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for r.behind(ends) && ctx.Err() == nil {
			r.client.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
				r.next[rec.Topic][rec.Partition] = rec.Offset + 1
				got = append(got, rec)
			})
		}
		if len(got) >= n {
			break
		}
	}
	return got
}

func (r *reader) behind(ends kadm.ListedOffsets) bool {
	behind := false
	ends.Each(func(o kadm.ListedOffset) {
		behind = behind || r.next[o.Topic][o.Partition] < o.Offset
	})
	return behind
}

func (r *reader) drain(tb *testing.T, n int) []sinktest.Received {
	var got []sinktest.Received
	for _, rec := range r.records(tb, n) {
		m := sinktest.Received{Key: string(rec.Key), Topic: rec.Topic, Payload: rec.Value, Headers: map[string]string{}}
		for _, h := range rec.Headers {
			m.Headers[h.Key] = string(h.Value)
		}
		m.ID = m.Headers["penstock-id"]
		m.CreatedAt, _ = time.Parse(time.RFC3339Nano, m.Headers["penstock-created-at"]) // the zero time is noticed
		got = append(got, m)
	}
	return got
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func message(id, key, topic string) penstock.Message {
	return penstock.Message{ID: id, Key: key, Topic: topic, Payload: []byte("payload of " + id), CreatedAt: time.Now(), Attempt: 1}
}
