package queuetest

import (
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var yearly = penstock.Schedule{Name: "s", Cron: "@yearly", Job: job("s")}

// runs has the time of the schedule s come, and reports whether it made a job.
func (e *env) runs() bool {
	before, now := e.schedules()[0], time.Now()
	e.Backdate(e, queue, "s", time.Minute)
	e.maintain()
	after := e.schedules()[0]
	if !after.Paused && after.Next.Before(now) {
		e.Fatalf("after its time the schedule is next at %s, which has passed", after.Next)
	}
	return after.LastJob != before.LastJob
}

func schedulePausesAndResumes(e *env) {
	e.schedule(yearly)
	next := e.schedules()[0].Next
	e.Must(e.Store.PauseSchedule(e.ctx, queue, "s"), "PauseSchedule")
	e.Must(e.Store.PauseSchedule(e.ctx, queue, "s"), "a second PauseSchedule")
	suite.Equal(e, e.runs(), false, "a paused schedule has made a job")
	e.schedule(yearly) // as at each start of an application
	if !e.schedules()[0].Paused || e.runs() {
		e.Error("SetSchedule ended the pause")
	}
	e.Must(e.Store.ResumeSchedule(e.ctx, queue, "s"), "ResumeSchedule")
	if s := e.schedules()[0]; s.Paused || !s.Next.Equal(next) {
		e.Errorf("after the pause the schedule is %+v, want the next time %s", s, next)
	}
	e.maintain()
	e.want() // none makes up for the time that passed
	e.Backdate(e, queue, "s", time.Minute)
	e.Must(e.Store.ResumeSchedule(e.ctx, queue, "s"), "ResumeSchedule without a pause")
	e.ack(e.collect("s")...) // it takes away no time that is due
	for _, one := range []func() error{
		func() error { return e.Store.PauseSchedule(e.ctx, queue, "none") },
		func() error { return e.Store.ResumeSchedule(e.ctx, queue, "none") },
		func() error { _, err := e.Store.RunSchedule(e.ctx, queue, "none"); return err },
	} {
		e.MustBe(one(), penstock.ErrNoSchedule, "a schedule that is missing")
	}
}

func scheduleRunsNow(e *env) {
	set := yearly
	set.SkipOverlap = true
	set.Job = penstock.NewJob{Key: "k", Group: "g", Priority: -3, Kind: "report", Headers: map[string]string{"h": "1"}, Payload: []byte("s"), DedupKey: "d"}
	e.schedule(set)
	e.Must(e.Store.PauseSchedule(e.ctx, queue, "s"), "PauseSchedule")
	next := e.schedules()[0].Next
	made := suite.Get(e.Store.RunSchedule(e.ctx, queue, "s")).Must(e, "RunSchedule")
	if s := e.schedules()[0]; made.Deduplicated || s.LastJob != made.ID || !s.Next.Equal(next) || !s.Paused {
		e.Errorf("RunSchedule returned %+v, and the schedule is %+v", made, s)
	}
	again := suite.Get(e.Store.RunSchedule(e.ctx, queue, "s")).Must(e, "RunSchedule of a duplicate")
	if !again.Deduplicated || again.ID != made.ID {
		e.Errorf("RunSchedule of a duplicate returned %+v, want the job %d", again, made.ID)
	}
	jobs := e.claimAs(driver.Claim{Group: "g", Jobs: 2})
	e.same(jobs, "s")
	if j := jobs[0]; j.ID != made.ID || j.Key != "k" || j.Priority != -3 || j.Kind() != "report" || j.Headers["h"] != "1" {
		e.Errorf("the job is %+v, want what the schedule says", j)
	}
	set.Job = job("s") // overlaps the first
	e.schedule(set)
	suite.Get(e.Store.RunSchedule(e.ctx, queue, "s")).Must(e, "RunSchedule while the last job runs")
	e.ack(e.want("s")...)
	e.ack(jobs...)
}

// A schedule's last job is looked for wherever a job that has not ended can be.
func scheduleSkipsAnOverlap(e *env) {
	e.schedule(yearly)
	for range 2 {
		suite.MustEqual(e, e.runs(), true, "without SkipOverlap a schedule has made a job")
	}
	e.ack(e.collect("s", "s")...)
	set := yearly
	set.SkipOverlap = true
	e.schedule(set)
	if !e.schedules()[0].SkipOverlap {
		e.Fatal("the schedule has lost SkipOverlap")
	}
	skips := func(where string) {
		suite.Equal(e, e.runs(), false, "the schedule has made a job while its last one %s", where)
	}
	suite.MustEqual(e, e.runs(), true, "the schedule has made a job after its last one had ended")
	skips("is ready")
	set.Job.Priority, set.Job.Group = -5, "elsewhere"
	e.schedule(set)
	skips("is ready, of another group and priority")
	e.schedule(penstock.Schedule{Name: "s", Cron: "@yearly", Job: job("s"), SkipOverlap: true})
	j := e.want("s")[0]
	skips("runs")
	e.retry(j, time.Hour, "no")
	skips("waits to be tried again")
	e.cancel(1, j.ID)
	suite.Equal(e, e.runs(), true, "the schedule has made a job after its last one was cancelled")
	e.release(0, e.want("s")...)
	skips("was released")
	j = e.collect("s")[0]
	e.Must(e.q.DeadLetter(e.ctx, j.Lease, "no"), "DeadLetter")
	suite.Equal(e, e.runs(), true, "the schedule has made a job after its last one had become a dead letter")
	e.ack(e.collect("s")...)
	e.want()
}

// A job may share its lease's row with others that are claimed and acked together.
func scheduleSkipsAnOverlapAmongMany(e *env) {
	set := yearly
	set.SkipOverlap = true
	e.schedule(set)
	for range 20 {
		e.enqueue(job("other"))
	}
	suite.MustEqual(e, e.runs(), true, "the schedule has made a job")
	for range 20 {
		e.enqueue(job("other"))
	}
	jobs := e.ackClaim(nil, driver.Claim{Jobs: 50})
	suite.MustEqual(e, len(jobs), 41, "claimed jobs")
	suite.Equal(e, e.runs(), false, "the schedule has made a job while its last one runs with others")
	for i := range jobs {
		if string(jobs[i].Payload) == "s" {
			e.ack(jobs[i])
		}
	}
	suite.Equal(e, e.runs(), true, "the schedule has made a job after its last one had ended, while others run")
}
