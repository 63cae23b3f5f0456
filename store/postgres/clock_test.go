package postgres_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// clocked is a fixture on a server whose clock the test sets.
type clocked struct {
	*inboxFixture
	server *testserver.Postgres
}

// TestWhenTheClockIsSet has one server for all of them, in turn: to make one takes longer than they do.
func TestWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgresWithClock(t)
	migrated := postgrestest.OnServer(server.URL)
	for name, test := range map[string]func(*testing.T, *clocked){
		"queue": queueWhenTheClockIsSet, "schedule": scheduleWhenTheClockIsSet, "parked": parkedWhenTheClockIsSet, "inbox": inboxWhenTheClockIsSet,
		"schedule across its time": scheduleAcrossItsTime, "done jobs": doneJobsWhenTheClockIsSet, "lease given back": leaseGivenBackBeforeTheClockIsSet,
	} {
		t.Run(name, func(t *testing.T) {
			if err := server.SetClock(0); err != nil {
				t.Fatal(err)
			}
			f := fixtureOn(t, migrated(t), postgres.Options{})
			f.Exec("select penstock.create_queue('q'), penstock.create_inbox('billing')")
			test(t, &clocked{&inboxFixture{fixture: f, inbox: f.store.Inbox("billing")}, server})
		})
	}
}

func (c *clocked) set(offset time.Duration) {
	c.Helper()
	c.Must(c.server.SetClock(offset))
}

// Workers that only use SQL do the maintenance of their queue whatever the clock has shown before:
// leases end and delayed jobs come.
func queueWhenTheClockIsSet(t *testing.T, c *clocked) {
	const year = 365 * 24 * time.Hour
	for _, offset := range []time.Duration{0, -time.Hour, year, -2 * time.Second, -3 * time.Second} {
		c.set(offset)
		c.Exec("select penstock.enqueue('q', 'leased')")
		if n := c.Number("select count(*) from penstock.claim('q', 10, lease => interval '1 ms')"); n != 1 {
			t.Fatalf("at %s %d jobs were claimed, want 1", offset, n)
		}
		c.Exec("select penstock.enqueue('q', 'delayed', not_before => clock_timestamp() + interval '1 ms')")
		var got int64
		c.Eventually("both jobs come at "+offset.String(), func() bool {
			got += c.Number("select count(*) from penstock.dequeue('q', 10)")
			return got == 2
		})
	}
	// Queues that were idle for a while give their space back, however much later they seem to have been
	// used last.
	c.set(year)
	c.Exec("select penstock.maintain_queue('q')")
	c.set(0)
	c.Exec("select penstock.maintain_queue('q')")
	if ahead := c.Number(`select (pg_sequence_last_value('penstock."_q.seen"') >> 28) - (extract(epoch from clock_timestamp()) * 10)::bigint`); ahead > 0 {
		t.Errorf("the queue is idle since %d tenths of a second from now", ahead)
	}
}

// A schedule that ran while the clock was far ahead continues when that is corrected.
func scheduleWhenTheClockIsSet(_ *testing.T, c *clocked) {
	c.set(30 * 24 * time.Hour)
	c.Exec("select penstock.schedule('q', 's', '0 0 * * *', 'x'), penstock.maintain_queue('q')")
	c.set(0)
	c.Eventually("the next run is the next midnight", func() bool {
		c.Exec("begin; select * from penstock.dequeue('q', 1); commit")
		return c.Number("select count(*) from penstock._schedule where next <= clock_timestamp() + interval '1 day'") == 1
	})
}

// A clock that is set across the time of a schedule, back and on again, has it run once for each time, also while it runs.
func scheduleAcrossItsTime(t *testing.T, c *clocked) {
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	at := func(days int, offset time.Duration) {
		c.set(time.Until(midnight) + time.Duration(days)*24*time.Hour + offset)
	}
	at(-1, -time.Minute)
	c.Exec("select penstock.schedule('q', 's', '0 0 * * *', 'x')")
	runs := int64(0)
	maintain := func(when string, want int64) {
		t.Helper()
		c.Exec("select penstock.maintain_queue('q')")
		for n := int64(1); n > 0; runs += n {
			n = c.Number("select count(*) from penstock.dequeue('q', 10)")
		}
		if runs != want {
			t.Errorf("%s: it ran %d times, want %d", when, runs, want)
		}
	}
	maintain("before it is time", 0)
	at(-1, time.Minute)
	maintain("after the clock was put on", 1)
	at(-1, -time.Minute)
	maintain("back, before the time at which it ran", 1)
	at(-1, time.Minute)
	maintain("on again", 1)
	at(2, time.Minute)
	maintain("three days on", 2)

	other := c.begin(c.Connect()) // has the insert of the job wait, while the clock is set back
	_, err := other.Exec(c.Ctx, `do $$ declare t text; begin
		for t in select format('penstock.%I', tablename) from pg_tables where schemaname = 'penstock' and tablename like '\_q.%' loop
			execute 'lock table ' || t || ' in share mode';
		end loop;
	end $$`)
	c.Must(err)
	at(3, time.Minute)
	maintainer, done := c.Connect(), make(chan error, 1)
	go func() {
		_, err := maintainer.Exec(c.Ctx, "select penstock.maintain_queue('q')")
		done <- err
	}()
	c.Eventually("the job waits", func() bool {
		return c.Number("select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", maintainer.PgConn().PID()) == 1
	})
	at(3, -time.Minute)
	c.Must(other.Rollback(c.Ctx))
	c.Must(<-done)
	maintain("set back while it ran", 3)
	at(3, time.Minute)
	maintain("on again after that", 3)
}

// A message that is parked after the clock was set back is due by the new time, and one that is
// being delivered meanwhile does not come a second time.
func parkedWhenTheClockIsSet(t *testing.T, c *clocked) {
	src := c.subscribe()
	park := func(b driver.Batch, in time.Duration) {
		verdicts := make([]driver.Verdict, len(b.Messages))
		for i := range verdicts {
			verdicts[i] = driver.Verdict{Outcome: driver.Parked, RetryIn: in, Failures: []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no"}}}
		}
		c.Must(storetest.Settle(c.Ctx, src, driver.Settled{Batch: b, Verdicts: verdicts}))
	}
	next := func() (b driver.Batch) {
		c.Eventually("there is a message", func() bool {
			var err error
			b, err = src.Fetch(c.Ctx, plenty)
			c.Must(err)
			return len(b.Messages) > 0
		})
		if len(b.Messages) != 1 {
			t.Fatalf("%d messages came, want 1", len(b.Messages))
		}
		return b
	}
	c.set(-2 * time.Hour)
	c.insert(c.Conn, "a", "a")
	park(next(), 0)
	c.set(0)
	a := next() // which is in hand from here on
	c.insert(c.Conn, "z", "z")
	park(next(), 0)
	next()
	c.set(-time.Hour)
	c.insert(c.Conn, "b", "b")
	park(next(), time.Millisecond)
	b := next()
	if got := string(b.Messages[0].Payload); got != "b" {
		t.Fatalf("%q came, want b", got)
	}
	park(a, time.Millisecond)
	if got := string(next().Messages[0].Payload); got != "a" {
		t.Fatalf("%q came, want a", got)
	}
}

// An inbox keeps turning, and hands over what it holds, after its clock was far ahead.
func inboxWhenTheClockIsSet(_ *testing.T, c *clocked) {
	c.set(365 * 24 * time.Hour)
	c.Exec("select penstock.maintain_inbox('billing')")
	c.receive(arrival("k", "1", ""), time.Hour)
	c.receive(arrival("k", "3", "2"), 0)
	c.Eventually("what is held is handed over", func() bool { return len(c.due(10)) == 1 })
	c.Exec("select penstock.maintain_inbox('billing')")
	c.set(0)
	c.Eventually("registers are not ahead of the clock", func() bool {
		c.receive(arrival("l", "other", ""), 0) // which maintains
		return c.Number(`select count(*) from (values ('since'), ('low')) r(name)
			where pg_sequence_last_value(format('penstock.%I', '__inbox.1.' || r.name)::regclass) > extract(epoch from clock_timestamp()) * 1000`) == 0
	})
	c.receive(arrival("m", "5", ""), time.Hour)
	c.receive(arrival("m", "7", "6"), 0)
	c.Eventually("what is held is handed over", func() bool { return len(c.due(10)) == 1 })
}

// History is listed whole, and none of it is kept for longer than is wanted, though the clock was ahead for a while.
func doneJobsWhenTheClockIsSet(t *testing.T, c *clocked) {
	day, least := 24*time.Hour, int64(penstock.MinKeepDoneBytes)
	c.Must(c.store.SetQueue(c.Ctx, "q", penstock.QueueSettings{KeepDone: &day, KeepDoneBytes: &least}))
	slot := func() int64 { return c.Number(`select pg_sequence_last_value('penstock."_q.done_turn"') % 8`) }
	fill := func() { // more than a segment has, so that the ring turns
		c.Helper()
		was := slot()
		c.Exec(`select penstock.enqueue('q', 'x') from generate_series(1, 300)`)
		c.Exec(`select penstock.report('q', j.lease, to_jsonb(repeat('r', 800))), penstock.ack('q', j.lease) from penstock.claim('q', 300, lease => interval '1 h') j`)
		c.Eventually("the ring turns", func() bool {
			c.Exec("select penstock.maintain_queue('q')")
			return slot() != was
		})
	}
	list := func(limit int) (n int) {
		for after := ""; ; {
			jobs, next, err := c.store.DoneJobs(c.Ctx, admin.DoneJobQuery{Queue: "q", After: after, Limit: limit})
			c.Must(err)
			n += len(jobs)
			if after = next; after == "" {
				return n
			}
		}
	}
	for _, offset := range []time.Duration{0, 48 * time.Hour, 0, time.Hour, 0} {
		c.set(offset)
		fill()
		if all, paged := list(1000), list(7); all != paged || all < 300 {
			t.Errorf("at %s %d are listed, in pages %d", offset, all, paged)
		}
	}
	for range 5 { // hours: the last ones are 25 hours old then
		c.Exec("select penstock.advance_queue('q', '6 h'), penstock.maintain_queue('q')")
	}
	fill()
	c.Eventually("what is older than 24 hours is given back", func() bool {
		c.Exec("select penstock.maintain_queue('q')")
		return list(1000) == 300
	})
}
