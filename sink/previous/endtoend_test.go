package previous_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sink/previous"
	"github.com/penstock/penstock/sink/rabbitmq"
	"github.com/penstock/penstock/store/postgres"
)

// An outbox, a relay, RabbitMQ, and four consumers of one queue that fail, and acknowledge too
// late. Each message takes effect once, in the order of its key.
func TestEndToEndInOrder(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const keys, each = 15, 60
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	e := newEndToEnd(ctx, t)
	for n := range each {
		msgs := make([]penstock.Message, keys)
		for k := range msgs {
			msgs[k] = penstock.Message{Key: fmt.Sprint("key-", k), Topic: "t", Payload: fmt.Append(nil, n)}
		}
		e.must(e.store.Publish(ctx, "orders", msgs...))
	}
	var consumers sync.WaitGroup
	for c := range 4 {
		consumers.Go(func() { e.consume(ctx, testseed.New(t.Name(), c), keys*each) })
	}
	consumers.Wait()

	rows, err := e.pool.Query(ctx, "select key, string_agg(place, ' ' order by n) from effects group by key")
	e.must(err)
	want := ""
	for n := range each {
		want += fmt.Sprint(" ", n)
	}
	found := 0
	var key, places string
	_, err = pgx.ForEachRow(rows, []any{&key, &places}, func() error {
		found++
		if " "+places != want {
			t.Errorf("%s was processed in the order %s", key, places)
		}
		return nil
	})
	e.must(err)
	if found != keys {
		t.Errorf("%d keys, want %d", found, keys)
	}
	t.Logf("%d deliveries of %d messages, %d of them were held back", e.deliveries.Load(), keys*each, e.held.Load())
	if e.held.Load() == 0 {
		t.Error("nothing came early, so nothing was tested")
	}
}

type endToEnd struct {
	testing.TB
	store         *postgres.Store
	pool          *pgxpool.Pool
	inbox         *postgres.Inbox
	rabbit, queue string
	done          atomic.Int64 // messages that have taken effect
	finished      chan struct{}
	deliveries    atomic.Int64
	held          atomic.Int64
}

func newEndToEnd(ctx context.Context, t testing.TB) *endToEnd {
	url := testserver.Database(t, testserver.PostgresURL(t))
	e := &endToEnd{TB: t, rabbit: testserver.RabbitMQURL(t), queue: fmt.Sprintf("penstock_inbox_%08x", rand.Uint32()), finished: make(chan struct{})}
	var err error
	e.store, err = postgres.Open(ctx, url, postgres.Options{})
	e.must(err)
	t.Cleanup(func() { _ = e.store.Close() })
	e.must(e.store.Migrate(ctx))
	e.must(e.store.CreateOutbox(ctx, "orders"))
	e.must(e.store.CreateInbox(ctx, "billing", 0))
	e.inbox = e.store.Inbox("billing")
	e.pool, err = pgxpool.New(ctx, url)
	e.must(err)
	t.Cleanup(e.pool.Close)
	_, err = e.pool.Exec(ctx, "create table effects (n bigserial, key text, place text)")
	e.must(err)

	cfg := rabbitmq.Config{URL: e.rabbit, RoutingKey: e.queue, DeclareQueue: e.queue}
	cfg.SetDefaults()
	broker, err := rabbitmq.Open(cfg, slog.New(slog.DiscardHandler))
	e.must(err)
	t.Cleanup(func() {
		e.remove()
		_ = broker.Close(context.Background())
	})
	r, err := relay.New(e.store, "orders", "to-rabbitmq", previous.Wrap(broker, 0), relay.Options{Logger: slog.New(slog.DiscardHandler)})
	e.must(err)
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(running)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return e
}

func (e *endToEnd) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *endToEnd) remove() {
	conn, err := amqp.Dial(e.rabbit)
	if err != nil {
		e.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDelete(e.queue, false, false, false)
	}
	if err != nil {
		e.Error(err)
	}
}

var errFails = errors.New("the consumer fails")

// consume is one consumer. It ends when all messages have taken effect.
func (e *endToEnd) consume(ctx context.Context, r *rand.Rand, all int) {
	conn, err := amqp.Dial(e.rabbit)
	if err != nil {
		e.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	deliveries, err := subscribe(conn, e.queue)
	if err != nil {
		e.Error(err)
		return
	}
	for {
		var d amqp.Delivery
		select {
		case d = <-deliveries:
		case <-e.finished:
			return
		case <-ctx.Done():
			e.Errorf("%d of %d messages have taken effect: %v", e.done.Load(), all, ctx.Err())
			return
		}
		e.deliveries.Add(1)
		m := penstock.Message{ID: d.MessageId, Payload: d.Body, Headers: map[string]string{}}
		m.Key, _ = d.Headers["penstock-key"].(string)
		m.Headers[penstock.HeaderPrevious], _ = d.Headers[penstock.HeaderPrevious].(string)
		processed := 0
		err := e.inbox.Process(ctx, e.pool, m, time.Minute, func(ctx context.Context, tx pgx.Tx, m penstock.Released) error {
			if m.Gap || m.Late {
				e.Errorf("%s %s: gap %v, late %v", m.Key, m.Payload, m.Gap, m.Late)
			}
			if r.IntN(20) == 0 {
				return errFails
			}
			processed++
			_, err := tx.Exec(ctx, "insert into effects (key, place) values ($1, $2)", m.Key, string(m.Payload))
			return err
		})
		switch {
		case errors.Is(err, errFails), err == nil && r.IntN(15) == 0: // or it dies before it has acknowledged
			if err := d.Nack(false, true); err != nil {
				e.Error(err)
			}
		case err != nil:
			e.Error(err)
			return
		default:
			if err := d.Ack(false); err != nil {
				e.Error(err)
			}
		}
		if err == nil {
			e.held.Add(int64(max(0, processed-1)))
			if e.done.Add(int64(processed)) == int64(all) && processed > 0 {
				close(e.finished)
			}
		}
	}
}

func subscribe(conn *amqp.Connection, queue string) (<-chan amqp.Delivery, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Qos(20, 0, false); err != nil {
		return nil, err
	}
	// The relay also declares the queue, whichever comes first.
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return nil, err
	}
	return ch.Consume(queue, "", false, false, false, false, nil)
}
