package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/store/postgres"
)

// A store on the caller's pool publishes, enqueues and reads, and leaves the pool open.
func TestNew(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	pool, err := pgxpool.New(f.Ctx, f.URL)
	f.Must(err)
	t.Cleanup(pool.Close)
	s := postgres.New(pool, postgres.Options{})
	f.Must(s.Outbox("orders").Publish(f.Ctx, penstock.Message{Payload: []byte("m")}))
	_, err = s.Queue("jobs").Enqueue(f.Ctx, texts("j")...)
	f.Must(err)
	source, err := s.Subscribe(f.Ctx, driver.Subscribe{Outbox: "orders", Subscription: "sub", Holder: "test"})
	f.Must(err)
	f.wantDrain(source, "m")
	f.Must(source.Close(f.Ctx))
	f.Must(s.Close())
	if jobs, err := s.Queue("jobs").Dequeue(f.Ctx, pool, 1, ""); err != nil || len(jobs) != 1 {
		t.Errorf("after Close the pool has %d jobs, %v", len(jobs), err)
	}
}
