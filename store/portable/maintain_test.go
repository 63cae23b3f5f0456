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

// A claim that has jobs has their leases run: it leaves leases of others that have ended, which are locked here, to the next one.
func TestLeaseBeginsAfterMaintenance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, portable.Options{})
	f.must(f.store.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	q := f.store.Queue("jobs")
	_, err := q.Enqueue(t.Context(), penstock.NewJob{Payload: []byte("ended")}, penstock.NewJob{Payload: []byte("another")})
	f.must(err)
	claim := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		jobs, err := q.Claim(ctx, driver.Claim{Jobs: 1, Lease: time.Hour})
		if f.must(err); len(jobs) != 1 || string(jobs[0].Payload) != want {
			t.Fatalf("claimed %v, want %s", jobs, want)
		}
	}
	claim("ended")
	exec(t, f.url, "update penstock_portable.leases set until = clock_timestamp() - interval '1 s'")
	conn, err := pgx.Connect(t.Context(), f.url)
	f.must(err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	f.must(err)
	_, err = tx.Exec(t.Context(), "select from penstock_portable.leases for update")
	f.must(err)
	claim("another")
	f.must(tx.Rollback(t.Context()))
	claim("ended")
}
