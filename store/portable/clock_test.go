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

// TestWhenTheDatabasesClockIsSet has one server for both, in turn: to make one takes longer than they do.
func TestWhenTheDatabasesClockIsSet(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgresWithClock(t)
	t.Run("max running", func(t *testing.T) { maxRunningAndAClockThatIsSetBack(t, server) })
	t.Run("schedule", func(t *testing.T) { scheduleAndAClockThatIsSet(t, server) })
}

// A clock that is set back has no more jobs run than may, though a process has seen leases end that end later than those of now.
func maxRunningAndAClockThatIsSetBack(t *testing.T, server *testserver.Postgres) {
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

// Schedules go by the clocks of workers: one runs once at its time there, however the database's clock is stepped across that.
func scheduleAndAClockThatIsSet(t *testing.T, server *testserver.Postgres) {
	url := testserver.Database(t, server.URL)
	s := openStore(t, url, portable.Options{})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Migrate(t.Context()))
	must(s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	must(s.SetSchedule(t.Context(), penstock.Schedule{Queue: "jobs", Name: "s", Cron: "0 0 1 1 *"}))
	runs := func(when string, offset time.Duration, want int) {
		t.Helper()
		must(server.SetClock(offset))
		must(s.Queue("jobs").Maintain(t.Context()))
		all, err := s.QueueStatus(t.Context(), "jobs")
		must(err)
		if got := int(all[0].Ready); got != want {
			t.Errorf("%s: it ran %d times, want %d", when, got, want)
		}
	}
	const twoYears = 2 * 365 * 24 * time.Hour
	must(server.SetClock(-twoYears))
	runs("the database's clock is before its time", -twoYears, 0)
	runs("behind its time", twoYears, 0)
	runs("and before it again", -twoYears, 0)
	exec(t, url, "update penstock_portable.schedules set next = $1", time.Now().Add(-time.Hour))
	runs("a worker's clock is behind its time", -twoYears, 1)
	for _, offset := range []time.Duration{twoYears, -twoYears, 0} {
		runs("at "+offset.String(), offset, 1)
	}
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
