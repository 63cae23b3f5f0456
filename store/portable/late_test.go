package portable_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/portable"
)

var plenty = driver.Limit{Messages: 1000, Bytes: 16 << 20}

// fixture is a database with the outbox orders.
type fixture struct {
	testing.TB
	url   string
	store *portable.Store
}

func newFixture(t testing.TB, opts portable.Options) *fixture {
	f := &fixture{TB: t, url: database(t)}
	f.store = openStore(t, f.url, opts)
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) publish(payload string) {
	f.Helper()
	f.must(f.store.Publish(f.Context(), "orders", penstock.Message{Key: "k", Payload: []byte(payload)}))
}

func (f *fixture) subscribe() driver.Source {
	f.Helper()
	src, err := f.store.Subscribe(f.Context(), driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	f.must(err)
	f.Cleanup(func() { _ = src.Close(context.Background()) })
	return src
}

// drain fetches until there is nothing, and settles.
func (f *fixture) drain(src driver.Source) (got []string) {
	f.Helper()
	for {
		b, err := src.Fetch(f.Context(), plenty)
		f.must(err)
		if len(b.Messages) == 0 {
			return got
		}
		for _, m := range b.Messages {
			got = append(got, string(m.Payload))
		}
		f.must(src.Settle(f.Context(), b.Number, driver.Settled{Batch: b}))
	}
}

// The next sweep finds a transaction that commits long after the margin. So does a reader that comes later and
// begins at the mark that the one before has left.
func TestCommitsAfterTheMargin(t *testing.T) {
	t.Parallel()
	const sweep = 200 * time.Millisecond
	f := newFixture(t, portable.Options{Margin: time.Minute, Sweep: sweep})
	src := f.subscribe()
	conn, err := pgx.Connect(t.Context(), f.url)
	f.must(err)
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.Begin(t.Context())
	f.must(err)
	// A plain INSERT, ten minutes ago.
	_, err = tx.Exec(t.Context(), "insert into penstock_portable.outbox_orders (ts, key, payload) values (clock_timestamp() - interval '10 minutes', 'k', 'late')")
	f.must(err)
	f.publish("early")
	if got := f.drain(src); len(got) != 1 || got[0] != "early" {
		t.Fatalf("got %q", got)
	}
	f.must(src.Renew(t.Context()))
	f.must(src.Close(t.Context()))
	src = f.subscribe()
	f.must(tx.Commit(t.Context()))
	var got []string
	for end := time.Now().Add(time.Minute); len(got) == 0 && time.Now().Before(end); { // until a sweep is due
		got = f.drain(src)
	}
	if len(got) != 1 || got[0] != "late" {
		t.Fatalf("after a sweep got %q", got)
	}
}

// Once the first job of a transaction that committed late was found, all others are claimed one after the other. No claim has to look
// again for each of them.
func TestManyJobsThatCommitLate(t *testing.T) {
	t.Parallel()
	for _, order := range []penstock.QueueOrder{penstock.FIFO, penstock.LIFO} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, portable.Options{})
			f.must(f.store.CreateQueue(t.Context(), "jobs", order))
			q := f.store.Queue("jobs")
			claim := func() int {
				jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
				f.must(err)
				return len(jobs)
			}
			conn, err := pgx.Connect(t.Context(), f.url)
			f.must(err)
			defer func() { _ = conn.Close(context.Background()) }()
			tx, err := conn.Begin(t.Context())
			f.must(err)
			const late = 100
			_, err = tx.Exec(t.Context(), "insert into penstock_portable.queue_jobs (payload) select 'late' from generate_series(1, $1)", late)
			f.must(err)
			for range 10 {
				_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("early")})
				f.must(err)
				if claim() != 1 {
					t.Fatal("an early job is not claimed")
				}
			}
			f.must(tx.Commit(t.Context()))
			for end := time.Now().Add(time.Minute); claim() == 0; { // until a claim looks again
				if time.Now().After(end) {
					t.Fatal("no late job is claimed")
				}
			}
			for i := range late - 1 {
				if claim() != 1 {
					t.Fatalf("claim %d after the first late job found none", i+1)
				}
			}
		})
	}
}
