package postgres_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// One message and several are different statements, and pgx finds out in several ways what types their parameters have.
func TestPublishInEveryExecMode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	var none penstock.Message
	all := penstock.Message{ID: "id", Key: `k"{`, Topic: `t'\`, Headers: map[string]string{"a": `"\{`}, Payload: []byte{0, 255, '\\'}}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config := f.Conn.Config()
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(f.Ctx, config)
		f.Must(err)
		for _, msgs := range [][]penstock.Message{{none}, {all}, {none, all}} {
			f.Must(f.store.Outbox("orders").PublishTx(f.Ctx, asTx(conn), msgs...))
			b, err := src.Fetch(f.Ctx, plenty)
			f.Must(err)
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
			var got []penstock.Message
			for _, m := range b.Messages {
				if m.Key == "" { // none, but with a derived id
					m.ID, m.Payload = "", nil
				}
				got = append(got, penstock.Message{ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers, Payload: m.Payload})
			}
			if !reflect.DeepEqual(got, msgs) {
				t.Errorf("%v: got %+v, want %+v", mode, got, msgs)
			}
		}
		f.Must(conn.Close(f.Ctx))
	}
}

// An outbox takes no jobs, and a queue no messages. The errors name the method for the other, and how to create what is missing.
func TestOutboxAndQueueMixedUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.Must(f.store.CreateQueue(f.Ctx, "jobs", penstock.FIFO))
	for _, name := range []string{"jobs", "missing"} {
		func() {
			tx, err := f.Conn.Begin(f.Ctx)
			f.Must(err)
			defer func() { _ = tx.Rollback(f.Ctx) }()
			err = f.store.Outbox(name).PublishTx(f.Ctx, tx, penstock.Message{})
			if !errors.Is(err, penstock.ErrNoOutbox) || !strings.Contains(err.Error(), "CreateOutbox or penstock outbox create "+name+"; if it is a queue, use EnqueueTx") {
				t.Errorf("publish to %s: %v", name, err)
			}
		}()
	}
	for _, name := range []string{"orders", "missing"} {
		func() {
			tx, err := f.Conn.Begin(f.Ctx)
			f.Must(err)
			defer func() { _ = tx.Rollback(f.Ctx) }()
			_, err = f.store.Queue(name).EnqueueTx(f.Ctx, tx, penstock.NewJob{})
			if !errors.Is(err, penstock.ErrNoQueue) || !strings.Contains(err.Error(), "CreateQueue or penstock queue create "+name+"; if it is an outbox, use PublishTx") {
				t.Errorf("enqueue to %s: %v", name, err)
			}
		}()
	}
}
