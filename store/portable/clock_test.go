package portable_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/portable"
)

// One message whose time is to come does not have those of now wait for sweeps: neither those of this reader nor of the next one.
func TestTimeThatIsToCome(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{Sweep: time.Hour})
	conn, err := pgx.Connect(t.Context(), f.url)
	f.must(err)
	defer func() { _ = conn.Close(t.Context()) }()
	src := f.subscribe()
	exec(t, f.url, "insert into penstock_portable.outbox_orders (ts, key, payload) values (clock_timestamp() + interval '1 day', 'k', 'to come')")
	if got := f.drain(src); len(got) != 1 {
		t.Fatalf("got %q", got)
	}
	for range 2 {
		f.publish("now")
		if got := f.drain(src); len(got) != 1 || got[0] != "now" {
			t.Fatalf("got %q, want what was published now", got)
		}
		f.must(src.Renew(t.Context()))
		f.must(src.Close(t.Context()))
		src = f.subscribe()
	}
}
