package systemtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock/sink/nats/embedded"
	"github.com/penstock/penstock/store/postgres/postgrestest"
)

// natsStream is a stream of one subject, "orders", that drops the ids that it has seen.
type natsStream struct{ url, name string }

// deduplicatingStream makes one in a server of the test's own.
func deduplicatingStream(t testing.TB) *natsStream {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
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
	conn, err := nats.Connect(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := do(ctx, js); err != nil {
		t.Fatal(err)
	}
}

// read notes all that the stream holds.
func (s *natsStream) read(t testing.TB, l *ledger, consumer string) {
	t.Helper()
	s.with(t, func(ctx context.Context, js jetstream.JetStream) error {
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
			l.got(consumer, receipt{id: m.Headers().Get("Nats-Msg-Id"), key: m.Headers().Get("Penstock-Key"), entry: string(m.Data())})
		}
		return nil
	})
}

// readThroughInbox has a consumer read a queue until the test ends. What it is handed
// it notes as "rabbitmq", and what its inbox, in a database of its own, takes for new as
// "inbox".
func readThroughInbox(t *testing.T, l *ledger, broker, queue string) {
	t.Helper()
	db := postgrestest.New(t)
	db.Exec("select penstock.create_inbox('billing')")
	ch := channel(t, broker)
	if err := ch.Qos(100, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for d := range deliveries {
			key, _ := d.Headers["penstock-key"].(string)
			r := receipt{id: d.MessageId, key: key, entry: string(d.Body)}
			var isNew bool
			err := pgx.BeginFunc(db.Ctx, db.Conn, func(tx pgx.Tx) error {
				return tx.QueryRow(db.Ctx, "select penstock.inbox('billing', $1)", r.id).Scan(&isNew)
			})
			if err != nil {
				ended <- err
				return
			}
			l.got("rabbitmq", r)
			if isNew {
				l.got("inbox", r)
			}
			if err := d.Ack(false); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		_ = ch.Close()
		if err := <-ended; err != nil {
			t.Errorf("the consumer ended: %v", err)
		}
	})
}
