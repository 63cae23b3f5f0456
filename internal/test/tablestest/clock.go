package tablestest

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// Clocked is a server whose clock a test sets. To start one takes longer than the cases do, which therefore share it.
type Clocked struct {
	A, B Store // two processes, on one migrated database
	// Set makes the database's clock differ from the machine's by that much.
	Set func(offset time.Duration)
	// Exec executes a statement, in which {schema} is the schema.
	Exec func(statement string)
}

// setClock has one server for all cases, in turn.
func (h Harness) setClock(t *testing.T) {
	f := newFixture(t)
	c := h.Clock(t)
	limitAndAClockThatIsSetBack(f, c)
	scheduleAndAClockThatIsSet(f, c)
}

// A clock that is set back has no more jobs run than may, though a process has seen leases end that end later than those of now.
func limitAndAClockThatIsSetBack(f *fixture, c Clocked) {
	claim := func(s Store, want int) (leases []int64) {
		jobs := suite.Get(s.DriverQueue("limited").Claim(f.Context(), driver.Claim{Jobs: 10, Lease: time.Minute})).Must(f, "Claim")
		suite.MustEqual(f, len(jobs), want, "claimed jobs")
		for _, j := range jobs {
			leases = append(leases, j.Lease)
		}
		return leases
	}
	f.OK(c.A.CreateQueue(f.Context(), "limited", penstock.FIFO), c.A.SetQueue(f.Context(), "limited", penstock.QueueSettings{MaxRunning: new(1)}))
	suite.Get(c.A.DriverQueue("limited").Enqueue(f.Context(), make([]penstock.NewJob, 5)...)).Must(f, "Enqueue")
	c.Set(2 * time.Hour)
	leases := claim(c.A, 1)
	claim(c.B, 0)
	suite.Get(c.A.DriverQueue("limited").Ack(f.Context(), leases...)).Must(f, "Ack")
	c.Set(time.Hour)
	claim(c.A, 1)
	claim(c.B, 0)
}

// Schedules go by the clocks of workers: one runs once at its time there, however the database's clock is stepped across that.
func scheduleAndAClockThatIsSet(f *fixture, c Clocked) {
	f.OK(c.A.CreateQueue(f.Context(), "timed", penstock.FIFO), c.A.SetSchedule(f.Context(), penstock.Schedule{Queue: "timed", Name: "s", Cron: "0 0 1 1 *"}))
	const twoYears = 2 * 365 * 24 * time.Hour
	runs := func(when string, offset time.Duration, want int64) {
		c.Set(offset)
		f.OK(c.A.DriverQueue("timed").Maintain(f.Context()))
		all := suite.Get(c.A.QueueStatus(f.Context(), "timed")).Must(f, "QueueStatus")
		suite.Equal(f, all[0].Ready+all[0].Delayed, want, "%s: how often it ran", when)
	}
	runs("the database's clock is before its time", -twoYears, 0)
	runs("behind its time", twoYears, 0)
	runs("and before it again", -twoYears, 0)
	c.Exec("update {schema}.schedules set next = '" + time.Now().UTC().AddDate(0, 0, -2).Format(time.DateTime) + "'") // the database's clock is long before it
	runs("a worker's clock is behind its time", -twoYears, 1)
	for _, offset := range []time.Duration{twoYears, -twoYears, 0} {
		runs("at "+offset.String(), offset, 1)
	}
}
