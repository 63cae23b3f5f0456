package nats_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock/internal/test/sinktest"
	"github.com/penstock/penstock/sink/nats"
)

const (
	testStream     = "ORDERS"
	testMaxPayload = 2 << 20
)

// broker is a real server on a loopback port that can be stopped and started
// again with the same data.
type broker struct {
	opts server.Options
	srv  *server.Server
}

// startBroker runs a server whose options change may complete. It stops when
// the test ends.
func startBroker(t testing.TB, change func(*server.Options)) *broker {
	t.Helper()
	b := &broker{opts: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true, MaxPayload: testMaxPayload,
	}}
	if change != nil {
		change(&b.opts)
	}
	b.start(t)
	b.opts.Port = b.srv.Addr().(*net.TCPAddr).Port
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start(t testing.TB) {
	t.Helper()
	opts := b.opts // the server writes to its options
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(sinktest.Patience) {
		srv.Shutdown()
		t.Fatal("the test's NATS server does not start")
	}
	b.srv = srv
}

func (b *broker) stop() {
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

func (b *broker) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.opts.Port)) }

// reader reads a stream only with the vendor's client. It connects again for each use, because
// servers come and go.
type reader struct {
	url  string
	opts []natsgo.Option
	next uint64 // sequence after what was drained
}

func (r *reader) use(t testing.TB, f func(context.Context, jetstream.JetStream)) {
	t.Helper()
	conn, err := natsgo.Connect(r.url, append(r.opts, natsgo.Timeout(sinktest.Patience))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sinktest.Patience)
	defer cancel()
	f(ctx, js)
}

func (r *reader) createStream(t testing.TB, cfg jetstream.StreamConfig) {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name, cfg.Subjects, cfg.Storage = testStream, []string{"orders.>"}, jetstream.FileStorage
	}
	r.use(t, func(ctx context.Context, js jetstream.JetStream) {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	})
}

// drain is sinktest's Drain on one stream.
func (r *reader) drain(t testing.TB, stream string, n int) (got []sinktest.Received) {
	t.Helper()
	r.use(t, func(ctx context.Context, js jetstream.JetStream) {
		// Again for each call: a message that comes after its time is not delivered again.
		consumer := func() jetstream.Consumer {
			c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
				AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(r.next, 1),
			})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		take := func(batch jetstream.MessageBatch, err error) int {
			if err != nil {
				t.Fatal(err)
			}
			before := len(got)
			for msg := range batch.Messages() {
				meta, err := msg.Metadata()
				if err != nil {
					t.Fatal(err)
				}
				r.next = meta.Sequence.Stream + 1
				got = append(got, received(t, msg))
			}
			return len(got) - before
		}
		for len(got) < n && ctx.Err() == nil {
			take(consumer().Fetch(n-len(got), jetstream.FetchMaxWait(time.Second)))
		}
		for take(consumer().FetchNoWait(1000)) > 0 {
		}
	})
	return got
}

func received(t testing.TB, msg jetstream.Msg) sinktest.Received {
	t.Helper()
	h := msg.Headers()
	created, err := time.Parse(time.RFC3339Nano, h.Get("Penstock-Created-At"))
	if err != nil {
		t.Errorf("message %q: %v", h.Get("Nats-Msg-Id"), err)
	}
	headers := map[string]string{}
	for name, values := range h {
		headers[name] = values[0]
	}
	return sinktest.Received{
		ID: h.Get("Nats-Msg-Id"), Key: h.Get("Penstock-Key"), Topic: h.Get("Penstock-Topic"),
		Payload: msg.Data(), Headers: headers, CreatedAt: created,
	}
}

// patiently waits long for a server on a busy machine. Tests of missing acknowledgements set their own times.
func patiently(cfg nats.Config) nats.Config {
	cfg.ConnectTimeout = sinktest.Patience
	if cfg.AckWait == 0 {
		cfg.AckWait = sinktest.Patience
	}
	return cfg
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("test set-up: %v", err))
	}
	return v
}
