package postgres_test

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// fromAnotherCluster makes the outbox look as if it came from a cluster that was a billion
// transactions ahead.
func (f *fixture) fromAnotherCluster() {
	f.Helper()
	f.fromACopy()
	f.Exec("update penstock._cursor set system = system + 1")
}

// fromACopy is the same of a copy of this cluster: one that began as its backup, was written to since, and has its identifier.
func (f *fixture) fromACopy() {
	f.Helper()
	f.Exec("update penstock.orders set xid = (xid::text::bigint + 1000000000)::text::xid8")
	f.Exec(`update penstock._cursor set done = (
		select format('%s:%s:%s', pg_snapshot_xmin(done)::text::bigint + 1000000000, pg_snapshot_xmax(done)::text::bigint + 1000000000,
			(select string_agg((x::text::bigint + 1000000000)::text, ',' order by x) from pg_snapshot_xip(done) x))::pg_snapshot)`)
}

// drainPages is drain in pages of ten; it counts what came.
func (f *fixture) drainPages(src driver.Source) map[string]int {
	f.Helper()
	seen := map[string]int{}
	for {
		b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
		f.Must(err)
		if len(b.Messages) == 0 && !b.More {
			return seen
		}
		for _, m := range b.Messages {
			seen[string(m.Payload)]++
		}
		f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
	}
}

func (f *fixture) wantOnce(seen map[string]int, from, to int) {
	f.Helper()
	for i := from; i <= to; i++ {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			f.Errorf("message %d came %d times", i, n)
		}
	}
	if len(seen) != to-from+1 {
		f.Errorf("%d messages came, want %d", len(seen), to-from+1)
	}
}

func (f *fixture) publishNumbers(from, to int) {
	f.Helper()
	f.Exec("insert into penstock.orders (key, payload) select 'k', convert_to(i::text, 'UTF8') from generate_series($1::int, $2) i", from, to)
}

// A segment with new messages of a restored outbox is not truncated before its relay runs: the cursor would cover them by the transactions of the
// other cluster.
func TestRestoredOutboxKeepsWhatIsNew(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(*fixture){"another cluster": (*fixture).fromAnotherCluster, "a copy of this one": (*fixture).fromACopy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, small)
			src := f.subscribe()
			f.publishNumbers(1, 10)
			f.wantOnce(f.drainPages(src), 1, 10)
			f.Must(src.Close(f.Ctx))
			restore(f)
			f.publishNumbers(11, 20)
			f.Exec("select penstock._rotate('orders', true)")
			for range 3 {
				f.Must(f.store.Maintain(f.Ctx, "orders"))
			}
			seen := f.drainPages(f.subscribe())
			for i := 11; i <= 20; i++ {
				if seen[fmt.Sprint(i)] == 0 {
					t.Errorf("message %d was lost", i)
				}
			}
		})
	}
}

// A new subscription of a restored outbox gets all of it, once; then what is new; and a
// replay finds all that is settled.
func TestNewSubscriptionOfARestoredOutbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.publishNumbers(1, 100)
	f.fromAnotherCluster()
	src := f.subscribe()
	f.wantOnce(f.drainPages(src), 1, 100)
	for range 2 { // the second cursor's bound is above all of it
		f.Must(src.Renew(f.Ctx))
		f.wantDrain(src)
	}
	f.publishNumbers(101, 130)
	f.wantOnce(f.drainPages(src), 101, 130)
	if n := f.replay(); n != 130 {
		t.Errorf("a replay of everything finds %d of 130", n)
	}
	f.wantOnce(f.drainPages(src), 1, 130)

	along, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Ephemeral: true})
	f.Must(err)
	defer along.Close(f.Ctx)
	f.wantOnce(f.drainPages(along), 1, 130)

	later, err := f.store.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "later", Holder: "test", Start: driver.FromNow})
	f.Must(err)
	defer later.Close(f.Ctx)
	f.publishNumbers(131, 131)
	f.wantOnce(f.drainPages(later), 131, 131)
}

// The same for a subscription that came along.
func TestReplayOfARestoredOutbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	src := f.subscribe()
	f.publishNumbers(1, 50)
	f.drainPages(src)
	f.publishNumbers(51, 100)
	f.Must(src.Close(f.Ctx))
	f.fromAnotherCluster()
	src = f.subscribe()
	f.wantOnce(f.drainPages(src), 51, 100)
	f.publishNumbers(101, 110)
	f.wantOnce(f.drainPages(src), 101, 110)
	if n := f.replay(); n != 110 {
		t.Errorf("a replay of everything finds %d of 110", n)
	}
	f.wantOnce(f.drainPages(src), 1, 110)
}

// A relay that stops while it reads a restored outbox continues where it was.
func TestRestoredOutboxIsReadOnAfterAStop(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.publishNumbers(1, 100)
	f.fromAnotherCluster()
	seen := map[string]int{}
	for range 4 {
		src := f.subscribe()
		for range 2 {
			b, err := src.Fetch(f.Ctx, driver.Limit{Messages: 10, Bytes: 1 << 20})
			f.Must(err)
			for _, m := range b.Messages {
				seen[string(m.Payload)]++
			}
			f.Must(src.Settle(f.Ctx, b.Number, driver.Settled{Batch: b}))
		}
		f.Must(src.Close(f.Ctx))
	}
	for payload := range f.drainPages(f.subscribe()) {
		seen[payload]++
	}
	f.wantOnce(seen, 1, 100)
}

// When the cluster comes to the xids of restored rows, these do not come with each poll
// while a transaction with the xid of one is open.
func TestXidOfARestoredRowIsGiven(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{})
	f.publishNumbers(1, 10)
	src := f.subscribe()
	f.drainPages(src)
	open := f.Connect()
	tx, err := open.Begin(f.Ctx)
	f.Must(err)
	f.insert(open, "k", "late")
	var xid string
	f.Must(open.QueryRow(f.Ctx, "select pg_current_xact_id()::text").Scan(&xid))
	f.Exec("update penstock.orders set xid = $1::xid8 where seq = 5", xid)
	for i := range 5 {
		f.insert(f.Conn, "k", fmt.Sprint("other ", i))
		f.wantDrain(src, fmt.Sprint("other ", i))
		f.Must(src.Renew(f.Ctx))
	}
	f.Must(tx.Commit(f.Ctx))
	if got := f.drain(src); fmt.Sprint(got) != "[5 late]" { // 5 comes once more
		t.Errorf("got %q", got)
	}
	f.wantDrain(src)
}
