package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/natsserver"
	"github.com/penstock/penstock/internal/readback"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// natsStream is a stream of one subject, "orders", that drops ids that it has seen.
type natsStream struct {
	url, name string
	again     int // messages that were read and whose attempt was above 1
}

// deduplicatingStream creates one in the test's own server.
func deduplicatingStream(t testing.TB) *natsStream {
	t.Helper()
	server, err := natsserver.Start(natsserver.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	s := &natsStream{url: server.ClientURL(), name: "orders"}
	s.with(t, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: s.name, Subjects: []string{"orders"}, Duplicates: time.Hour})
		return err
	})
	return s
}

func (s *natsStream) with(t testing.TB, do func(context.Context, jetstream.JetStream) error) {
	t.Helper()
	if err := s.try(t, do); err != nil {
		t.Fatal(err)
	}
}

// try is with for servers that may be away.
func (s *natsStream) try(t testing.TB, do func(context.Context, jetstream.JetStream) error) error {
	conn, err := nats.Connect(s.url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	return do(ctx, js)
}

// read notes everything that the stream holds.
func (s *natsStream) read(t testing.TB, l *ledger, consumer string) {
	t.Helper()
	var all []receipt
	eventually(t, "the stream can be read to its end", func() bool { // in a cluster, a server that is not up to date may answer
		all, s.again = nil, 0
		err := s.try(t, func(ctx context.Context, js jetstream.JetStream) error {
			stream, err := js.Stream(ctx, s.name)
			if err != nil {
				return err
			}
			left := stream.CachedInfo().State.Msgs
			if left == 0 {
				return nil
			}
			reader, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
			if err != nil {
				return err
			}
			messages, err := reader.Messages()
			if err != nil {
				return err
			}
			defer messages.Stop()
			for ; left > 0; left-- {
				m, err := messages.Next(jetstream.NextContext(ctx))
				if err != nil {
					return fmt.Errorf("%d messages before the end: %w", left, err)
				}
				if m.Headers().Get("Penstock-Attempt") != "" {
					s.again++
				}
				all = append(all, receipt{id: m.Headers().Get("Nats-Msg-Id"), key: m.Headers().Get("Penstock-Key"), entry: string(m.Data())})
			}
			return nil
		})
		if err != nil {
			t.Logf("reading the stream: %v", err)
		}
		return err == nil
	})
	for _, r := range all {
		l.got(consumer, r)
	}
}

// readThroughInbox makes a consumer read a queue. It notes the delivered messages as "rabbitmq".
// Those that its inbox, in a separate database, reports as new are "inbox", and those that an
// ordered inbox hands over are "ordered". The returned function returns when it has read everything
// in the queue at that time.
func readThroughInbox(t *testing.T, l *ledger, broker, queue string) (finish func()) {
	t.Helper()
	db := postgrestest.New(t)
	db.Exec("select penstock.create_inbox('billing'), penstock.create_inbox('ordered')")
	ctx := context.WithoutCancel(t.Context())
	inOrder := func(sql string, args ...any) (int, error) {
		rows, err := db.Conn.Query(ctx, "select message_id, coalesce(key, ''), convert_from(payload, 'UTF8') from "+sql, args...)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var r receipt
			if err := rows.Scan(&r.id, &r.key, &r.entry); err != nil {
				return 0, err
			}
			l.got("ordered", r)
		}
		return n, rows.Err()
	}
	ch := channel(t, broker)
	if err := ch.Qos(100, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "end"
	var came atomic.Int64
	read := func() error {
		for d := range deliveries {
			came.Add(1)
			if d.Type == mark {
				return nil
			}
			key, _ := d.Headers["penstock-key"].(string)
			r := receipt{id: d.MessageId, key: key, entry: string(d.Body)}
			var isNew bool
			if err := db.Conn.QueryRow(ctx, "select penstock.inbox('billing', $1)", r.id).Scan(&isNew); err != nil {
				return err
			}
			l.got("rabbitmq", r)
			if isNew {
				l.got("inbox", r)
			}
			var keyed *string
			if key != "" {
				keyed = &key
			}
			previous, _ := d.Headers[penstock.HeaderPrevious].(string)
			if _, err := inOrder("penstock.inbox_in_order_bytes('ordered', $1, $2, nullif($3, ''), '{}', $4, interval '1 min')", keyed, r.id, previous, d.Body); err != nil {
				return err
			}
			if err := d.Ack(false); err != nil {
				return err
			}
		}
		return errors.New("the queue was closed")
	}
	ended := make(chan error, 1)
	go func() { ended <- read() }()
	return func() {
		t.Helper()
		if err := channel(t, broker).PublishWithContext(ctx, "", queue, true, false, amqp.Publishing{Type: mark}); err != nil {
			t.Fatal(err)
		}
		for more, before := true, int64(-1); more; {
			select {
			case err := <-ended:
				if more = false; err != nil {
					t.Fatalf("the consumer ended: %v", err)
				}
			case <-time.After(patience): // a long queue takes longer than that
				now := came.Load()
				if now == before {
					t.Fatalf("the consumer does not come to the end of the queue, after %d messages", now)
				}
				before = now
			}
		}
		db.Exec("select penstock.inbox_release('ordered')") // no more messages come
		for {
			n, err := inOrder("penstock.inbox_due('ordered', 1000)")
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return
			}
		}
	}
}

// count is how many messages a consumer received.
func (l *ledger) count(consumer string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.arrivals[consumer])
}

// count is how many messages the stream holds. It may be away.
func (s *natsStream) count(t testing.TB) (n uint64, err error) {
	err = s.try(t, func(ctx context.Context, js jetstream.JetStream) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, s.name)
		if err == nil {
			n = stream.CachedInfo().State.Msgs
		}
		return err
	})
	return n, err
}

// readBack has the broker's own client read what a sink sends, into a queue, stream or
// topic that the test's sink is to use. The returned function returns when all that the
// broker has confirmed was read.
func readBack(t testing.TB, l *ledger, sinkURL, consumer string) (sink string, finish func()) {
	t.Helper()
	broker, err := drivers.ReadBack(sinkURL, "", fmt.Sprintf("penstock_test_%08x", rand.Uint32()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	if err := broker.Open(ctx, nil); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		read <- broker.Read(ctx, func(a readback.Arrival) {
			l.got(consumer, receipt{id: a.ID, key: a.Key, entry: string(a.Payload)})
		})
	}()
	t.Cleanup(func() {
		stop()
		_ = broker.Close()
	})
	return broker.SinkURL(), func() {
		t.Helper()
		if err := broker.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-read:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatalf("the %s consumer does not come to the end", consumer)
		}
	}
}
