package postgres_test

import (
	"reflect"
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
