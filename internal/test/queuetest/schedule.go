package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var scheduleCases = slices.Concat(named("Schedule", scheduleSetListDrop, scheduleFiresOnce, scheduleGoesOnAfterAClockWasAhead,
	scheduleFiresOnceInAllProcesses, scheduleSkipsADuplicate, schedulePausesAndResumes, scheduleRunsNow, scheduleSkipsAnOverlap,
	scheduleSkipsAnOverlapAmongMany, scheduleCronTimes, scheduleCronNonsense, scheduleBadInput),
	needing(Features{Options: true}, named("Schedule", scheduleCarriesOptions)),
	needing(Features{Unique: true}, named("Schedule", scheduleOfAUniqueJob)))

func (e *env) schedule(s penstock.Schedule) {
	s.Queue = queue
	e.Must(e.Store.SetSchedule(e.ctx, s), "SetSchedule")
}

func (e *env) schedules() []penstock.Schedule {
	return suite.Get(e.Store.Schedules(e.ctx, queue)).Must(e, "Schedules")
}

func scheduleSetListDrop(e *env) {
	suite.MustEqual(e, len(e.schedules()), 0, "schedules of a new queue")
	now := time.Now()
	e.schedule(penstock.Schedule{Name: "yearly", Cron: "@yearly", Job: job("y")})
	e.schedule(penstock.Schedule{Name: "nightly", Cron: "30 4 * * *",
		Job: penstock.NewJob{Key: "k", Group: "g", Priority: -3, Headers: map[string]string{"h": "1"}, Payload: []byte("n")}})
	after, all := time.Now(), e.schedules()
	if len(all) != 2 || all[0].Name != "nightly" || all[1].Name != "yearly" {
		e.Fatalf("the schedules are %+v, want nightly and yearly", all)
	}
	s := all[0]
	if j := s.Job; s.Queue != queue || s.Cron != "30 4 * * *" || j.Key != "k" || j.Group != "g" || j.Priority != -3 || j.Headers["h"] != "1" || string(j.Payload) != "n" {
		e.Errorf("the schedule is %+v, want what was set", s)
	}
	next := s.Next.UTC()
	if next.Hour() != 4 || next.Minute() != 30 || next.Before(now) || next.After(after.Add(24*time.Hour)) {
		e.Errorf("the next time of 30 4 * * * is %s", next)
	}
	if next := all[1].Next.UTC(); next.YearDay() != 1 || next.Hour() != 0 || next.Before(now) {
		e.Errorf("the next time of @yearly is %s", next)
	}
	e.schedule(penstock.Schedule{Name: "nightly", Cron: "0 5 * * *", Job: job("changed")})
	if all = e.schedules(); len(all) != 2 || all[0].Next.UTC().Hour() != 5 || string(all[0].Job.Payload) != "changed" || all[0].Job.Key != "" {
		e.Errorf("after the change the schedules are %+v", all)
	}
	e.Must(e.Store.DropSchedule(e.ctx, queue, "nightly"), "DropSchedule")
	e.MustBe(e.Store.DropSchedule(e.ctx, queue, "nightly"), penstock.ErrNoSchedule, "a second DropSchedule")
	if all = e.schedules(); len(all) != 1 {
		e.Errorf("after DropSchedule there are %d schedules, want 1", len(all))
	}
	e.maintain()
	e.want()
}

// One job makes up for the times that passed while no worker ran.
func scheduleFiresOnce(e *env) {
	monthly := penstock.Schedule{Name: "monthly", Cron: "0 0 1 1 *",
		Job: penstock.NewJob{Key: "k", Priority: -3, Headers: map[string]string{"h": "1"}, Payload: []byte("m")}}
	e.schedule(monthly)
	next := e.schedules()[0].Next
	e.maintain()
	e.want()
	e.Backdate(e, queue, "monthly", 5*365*24*time.Hour)
	e.schedule(monthly) // what is due stays due
	claimed := e.collect("m")
	if j := claimed[0]; j.Key != "k" || j.Priority != -3 || j.Headers["h"] != "1" || j.Attempt != 1 {
		e.Errorf("the periodic job is %+v, want what the schedule says", j)
	}
	if got := e.schedules()[0].Next; !got.Equal(next) {
		e.Errorf("after the periodic job the next time is %s, want %s", got, next)
	}
	e.ack(claimed...)
	for range 3 {
		e.maintain()
		e.want()
	}
}

// A schedule that ran while a clock was far ahead goes by the time that is, once a process looks at it. A clock that was ahead
// by up to three hours has it run for no time again.
func scheduleGoesOnAfterAClockWasAhead(e *env) {
	e.schedule(penstock.Schedule{Name: "s", Cron: "@yearly", Job: job("s")})
	e.schedule(penstock.Schedule{Name: "little", Cron: "* * * * *", Job: job("little")})
	const little = 175 * time.Minute
	e.Backdate(e, queue, "little", -little)
	before := e.schedules()
	e.Must(e.Another(e).DriverQueue(queue).Maintain(e.ctx), "Maintain")
	if after := e.schedules(); !after[0].Next.Equal(before[0].Next) {
		e.Errorf("what ran %s ahead is next at %s, want %s", little, after[0].Next, before[0].Next)
	}
	e.Backdate(e, queue, "s", -800*24*time.Hour)
	e.Must(e.Another(e).DriverQueue(queue).Maintain(e.ctx), "Maintain")
	if after := e.schedules(); !after[1].Next.Equal(before[1].Next) {
		e.Errorf("what ran years ahead is next at %s, want %s", after[1].Next, before[1].Next)
	}
	e.want()
}

func scheduleFiresOnceInAllProcesses(e *env) {
	e.schedule(penstock.Schedule{Name: "s", Cron: "@yearly", Job: job("s")})
	qs := []driver.Queue{e.q, e.Another(e).DriverQueue(queue), e.Another(e).DriverQueue(queue)}
	for range 5 {
		e.Backdate(e, queue, "s", time.Minute)
		e.Must(suite.Concurrently(len(qs)*2, func(i int) error { return qs[i%len(qs)].Maintain(e.ctx) }), "Maintain at once")
		e.ack(e.collect("s")...)
		e.maintain()
		e.want()
	}
}

// A periodic job is a duplicate like any other; its schedule continues.
func scheduleSkipsADuplicate(e *env) {
	e.schedule(penstock.Schedule{Name: "s", Cron: "@yearly", Job: once("d", "periodic")})
	suite.Equal(e, e.schedules()[0].Job.DedupKey, "d", "dedup key of the schedule")
	e.enqueue(once("d", "first"))
	e.ack(e.want("first")...)
	now := time.Now()
	e.Backdate(e, queue, "s", time.Minute)
	e.maintain()
	e.want()
	if next := e.schedules()[0].Next; next.Before(now) {
		e.Errorf("after a duplicate the next time is %s, which has passed", next)
	}
	e.set(penstock.QueueSettings{DedupWindow: new(time.Microsecond)})
	e.Backdate(e, queue, "s", time.Minute)
	e.ack(e.collect("periodic")...)
}

func scheduleBadInput(e *env) {
	good := penstock.Schedule{Queue: queue, Name: "s", Cron: "@hourly", Job: job("a")}
	s := good
	long := strings.Repeat("s", penstock.MaxScheduleBytes)
	for _, name := range []string{"", long + "s", "a\x00", "\xff"} {
		s.Name = name
		e.BadField(fmt.Sprintf("SetSchedule %q", name), e.Store.SetSchedule(e.ctx, s), "schedule")
	}
	s = good
	s.Job.Priority = penstock.MaxPriority + 1
	e.BadField("SetSchedule with a bad priority", e.Store.SetSchedule(e.ctx, s), "priority")
	s = good
	s.Job.NotBefore = time.Now().Add(time.Hour)
	e.BadField("SetSchedule of a job with a time", e.Store.SetSchedule(e.ctx, s), "not before")
	s = good
	s.Queue = "missing"
	e.MustBe(e.Store.SetSchedule(e.ctx, s), penstock.ErrNoQueue, "SetSchedule in a queue that is missing")
	suite.Equal(e, len(e.schedules()), 0, "schedules that bad input left")
	s = good
	s.Name = long
	e.schedule(s)
	if all := e.schedules(); len(all) != 1 || all[0].Name != long {
		e.Errorf("the schedules are %+v, want one with a long name", all)
	}
	err := e.Store.DropSchedule(e.ctx, "missing", "s")
	if !errors.Is(err, penstock.ErrNoQueue) && !errors.Is(err, penstock.ErrNoSchedule) {
		e.Errorf("DropSchedule in a queue that is missing: got error %v", err)
	}
}

func scheduleCarriesOptions(e *env) {
	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	j := penstock.NewJob{Kind: "k", MaxAttempts: 3, Timeout: 1500 * time.Millisecond, Deadline: deadline, Headers: map[string]string{"h": "1"}}
	want := j.AllHeaders()
	e.schedule(penstock.Schedule{Name: "s", Cron: "@yearly", Job: j})
	set := e.schedules()[0]
	if set.Job.Kind != "k" || set.Job.MaxAttempts != 3 || set.Job.Timeout != j.Timeout || !set.Job.Deadline.Equal(deadline) {
		e.Errorf("the schedule has the job %+v", set.Job)
	}
	e.schedule(set) // what was read can be set again
	e.Backdate(e, queue, "s", time.Minute)
	e.maintain()
	suite.Equal(e, e.collect("")[0].Headers, want, "headers of the schedule's job")
}

func scheduleOfAUniqueJob(e *env) {
	e.schedule(penstock.Schedule{Name: "s", Cron: "@yearly", Job: unique("u", "a")})
	for range 3 {
		e.Backdate(e, queue, "s", time.Minute)
		e.maintain()
	}
	claimed := e.collect("a")
	e.want()
	e.ack(claimed...)
	e.maintain()
	e.want()
}
