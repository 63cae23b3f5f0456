package adopt_test

import (
	"maps"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/postgres/adopt"
)

// TestPresets carries the rows of each preset's table through a relay.
func TestPresets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		preset, table, insert, left string
		check                       func(t *testing.T, m penstock.Message)
	}{
		{"dotnet", dotnetTable, `insert into outbox_messages (type, content) values ('OrderPlaced', '{"n": 1}')`,
			"select count(*) from outbox_messages where processed_on_utc is null or error is not null",
			func(t *testing.T, m penstock.Message) {
				if m.Topic != "OrderPlaced" || m.Key != "" || string(m.Payload) != `{"n": 1}` || len(m.ID) != 36 || m.CreatedAt.IsZero() {
					t.Errorf("got %+v", m)
				}
			}},
		{"debezium", debeziumTable, `insert into outboxevent values ('4d47e190-0402-4048-bc2c-89dd54343cdc', 'order', '17', 'OrderCreated', '{"n": 1}',
			E'#Sun\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n')`,
			"select count(*) from outboxevent",
			func(t *testing.T, m penstock.Message) {
				want := map[string]string{"id": "4d47e190-0402-4048-bc2c-89dd54343cdc", "eventType": "OrderCreated",
					"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
				if m.Topic != "outbox.event.order" || m.Key != "17" || m.ID != want["id"] || string(m.Payload) != `{"n": 1}` || !maps.Equal(m.Headers, want) {
					t.Errorf("got %+v", m)
				}
			}},
		{"message", messageTable, `insert into outbox (message) values ('hello')`, "select count(*) from outbox",
			func(t *testing.T, m penstock.Message) {
				if m.Topic != "outbox" || m.ID != "outbox-1" || string(m.Payload) != "hello" || m.CreatedAt.IsZero() {
					t.Errorf("got %+v", m)
				}
			}},
		{"events", eventsTable, `insert into events (data) values ('hello')`, "select count(*) from events",
			func(t *testing.T, m penstock.Message) {
				if m.Topic != "events" || m.ID != "events-1" || string(m.Payload) != "hello" || m.CreatedAt.IsZero() {
					t.Errorf("got %+v", m)
				}
			}},
	} {
		t.Run(c.preset, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Exec(c.table)
			f.Exec(c.insert)
			table := f.open(adopt.Config{Preset: c.preset})
			f.Must(table.Check(f.Ctx))
			var sink collector
			stop := f.relay(table, &sink, nil)
			f.Eventually("the message arrives", func() bool { return sink.count() > 0 })
			stop()
			if n := f.Number(c.left); n != 0 {
				t.Errorf("%d rows are not settled", n)
			}
			if sink.count() != 1 {
				t.Fatalf("%d messages arrived", sink.count())
			}
			c.check(t, sink.all()[0])
		})
	}
}
