package portable_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/portable"
)

// A clock that is set back has no more jobs run than may, though a process has seen leases end that end later than those of now.
func TestMaxRunningAndAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgresWithClock(t)
	a, b := openStore(t, server.URL, portable.Options{}), openStore(t, server.URL, portable.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	claim := func(s *portable.Store, want int) (leases []int64) {
		t.Helper()
		jobs, err := s.Queue("jobs").Claim(t.Context(), driver.Claim{Jobs: 10, Lease: time.Minute})
		must(err)
		if len(jobs) != want {
			t.Fatalf("claimed %d jobs, want %d", len(jobs), want)
		}
		for _, j := range jobs {
			leases = append(leases, j.Lease)
		}
		return leases
	}
	most := 1
	must(a.Migrate(t.Context()))
	must(a.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	must(a.SetQueue(t.Context(), "jobs", penstock.QueueSettings{MaxRunning: &most}))
	_, err := a.Queue("jobs").Enqueue(t.Context(), make([]penstock.NewJob, 5)...)
	must(err)
	must(server.SetClock(2 * time.Hour))
	leases := claim(a, 1)
	claim(b, 0)
	_, err = a.Queue("jobs").Ack(t.Context(), leases...)
	must(err)
	must(server.SetClock(time.Hour))
	claim(a, 1)
	claim(b, 0)
}

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
