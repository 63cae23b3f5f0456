package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// Many messages, which go by COPY, arrive as few do: whole, in their order, all or none, and with the errors of few. They also do so
// where row security forbids COPY.
func TestPublishManyIsAsPublishFew(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	name, asRole := f.role()
	f.Must(f.store.GrantProducer(f.Ctx, "orders", name))
	producer := openStore(t, asRole, postgres.Options{})
	many := func() (msgs []penstock.Message) {
		for i := range 500 {
			m := penstock.Message{ID: fmt.Sprint(i), Topic: `t'\`, Payload: []byte{0, 255, '\\', byte(i)}}
			if i%2 == 0 {
				m.Key, m.Headers = `k"{é`, map[string]string{"a": `"\{é`, "b": ""}
			}
			if i%100 == 99 {
				m.Payload = bytes.Repeat([]byte{byte(i)}, 100_000) // more than COPY sends at once
			}
			msgs = append(msgs, m)
		}
		return msgs
	}
	publish := func(how string) {
		f.Must(producer.Publish(f.Ctx, "orders", many()...))
		if n := f.Number("select count(*) from penstock.orders where key = '' or headers = '{}'"); n > 0 {
			t.Errorf("%s: %d messages without a key or headers do not have NULL there", how, n)
		}
		var got []penstock.Message
		for len(got) < 500 {
			b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 1000, Bytes: 64 << 20})
			f.Must(err)
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
			for _, m := range b.Messages {
				got = append(got, penstock.Message{ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers, Payload: m.Payload})
			}
		}
		if !reflect.DeepEqual(got, many()) {
			t.Errorf("%s: what came is not what was published", how)
		}
	}
	publish("by COPY")

	bad := many()
	bad[300].Key = "\x00"
	var field *penstock.FieldError
	if err := producer.Publish(f.Ctx, "orders", bad...); !errors.As(err, &field) || !strings.Contains(err.Error(), "message 301 of 500") {
		t.Errorf("a key with a NUL: %v", err)
	}
	if err := producer.Publish(f.Ctx, "nowhere", many()...); !errors.Is(err, penstock.ErrNoOutbox) {
		t.Errorf("an outbox that is not there: %v", err)
	}
	f.Exec("alter table penstock.orders add constraint no check (id <> '400') not valid")
	if err := producer.Publish(f.Ctx, "orders", many()...); !f.store.RefusesContent(err) {
		t.Errorf("a constraint: %v", err)
	}
	f.Exec("alter table penstock.orders drop constraint no")
	f.wantDrain(src)

	f.Exec("create policy all_may on penstock.orders for insert with check (true)")
	f.Exec("alter table penstock.orders enable row level security")
	publish("with row security")
}
