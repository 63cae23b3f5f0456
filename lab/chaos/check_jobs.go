package main

import (
	"cmp"
	"slices"
	"time"
)

// Kinds of violation of jobs alone. Others have the names that they have for messages.
const (
	together  = "jobs_together"    // two runs of a job, or of a key, at a time
	leaseGone = "lease_gone"       // of a worker to which nothing happened
	cancelRan = "ran_after_cancel" // a job that was cancelled
	overLimit = "over_limit"       // more jobs of a group ran at a time than may
)

// jobCounts counts the checks, and in the summary the violations of jobs.
type jobCounts struct {
	Committed  int `json:"committed"`
	Done       int `json:"done"`
	Lost       int `json:"lost"`
	Doubled    int `json:"doubled"` // after they were done, or two at a time, without need
	OutOfOrder int `json:"out_of_order"`
	Cancelled  int `json:"cancelled"`
	Dead       int `json:"dead"`
	Runs       int `json:"runs"`
	Again      int `json:"again"`           // runs that were not a job's first
	Waited     int `json:"waited"`          // runs of jobs that wait for others, by a barrier
	ManyWaited int `json:"waited_for_many"` // of these such as wait for a crowd
	Replaced   int `json:"replaced"`        // by a later job of their unique key, before they were done
}

// loss is a job whose lease its worker had lost, as its log says.
type loss struct {
	Worker, Job string
	At          time.Time
}

// jobs checks the runs of the jobs.
//
//   - Each committed job was done in the end, unless it was cancelled or replaced: of a unique key the last one that was committed. No other ran.
//   - Once its worker knew that it is done, it did not run again, unless something kept the worker from writing that.
//   - No two jobs of a key ran at a time, nor did one job twice, unless something made the first lease end.
//   - No worker lost a lease before its time: a late worker's call must not end the lease of the next one.
//   - The database never had more leases of a group than its limit. Rates are not checked: a worker that stands still sends its jobs later.
//   - A job did not begin before those that its key has before it were done, dead or cancelled, nor before those that it waits for.
func (e *evidence) jobs(v *verdict) {
	of, keys, ids := map[string][]*jobRun{}, map[string][]*jobRun{}, map[string]string{}
	for _, run := range e.runs {
		v.Jobs.Runs++
		fact, there := e.facts[run.ID]
		switch {
		case !there && e.forgotten(run.ID):
			continue
		case !there:
			v.found(phantom, jobsRoute, run.ID, "its job ran, but was never committed")
			continue
		case run.message != fact:
			v.found(corrupted, jobsRoute, run.ID, "enqueued as %+v, run as %+v", fact, run.message)
		case !fact.hasJob():
			v.found(phantom, jobsRoute, run.ID, "it has no job, but one ran")
		}
		ids[run.Job] = run.ID
		of[run.ID] = append(of[run.ID], run)
		keys[cmp.Or(run.Key, "of job "+run.ID)] = append(keys[cmp.Or(run.Key, "of job "+run.ID)], run)
	}
	for _, g := range groups {
		if n := e.running[g.name]; n > g.limit {
			v.found(overLimit, jobsRoute, "", "%d jobs of group %q had a lease at a time, and %d may", n, g.name, g.limit)
		}
	}
	newest := map[string]int64{} // number of each unique key
	for _, fact := range e.facts {
		if fact.hasJob() && fact.replaced() {
			newest[fact.Key] = max(newest[fact.Key], fact.N)
		}
	}
	refused := func(run *jobRun) bool { return run.Status == jobRefused }
	for _, d := range e.dead[jobsRoute] {
		v.Jobs.Dead++
		if d.Reason == "" || !slices.ContainsFunc(of[d.ID], refused) && !e.forgotten(d.ID) {
			v.found(wronglyDead, jobsRoute, d.ID, "its job is a dead letter, but its handler did not refuse it: %q", d.Reason)
		}
	}
	facts := map[string][]message{}
	for id, fact := range e.facts {
		if !fact.hasJob() {
			continue
		}
		v.Jobs.Committed++
		cancelled, was := e.cancelled[id]
		done := e.doneOnce(v, of[id])
		switch {
		case was:
			v.Jobs.Cancelled++
			e.notAfter(v, cancelled, of[id])
		case done.IsZero() && fact.N < newest[fact.Key]:
			v.Jobs.Replaced++
		case done.IsZero():
			v.found(lost, jobsRoute, id, "its job was committed and not done")
		default:
			v.Jobs.Done++
		}
		if fact.Key != "" && !was && !slices.ContainsFunc(of[id], refused) {
			facts[fact.Key] = append(facts[fact.Key], fact)
		}
	}
	for _, l := range e.losses {
		id := ids[queue+"-"+l.Job]
		if _, cancelled := e.cancelled[id]; !cancelled && !e.excused(l.Worker, l.At.Add(-2*lease), l.At) {
			v.found(leaseGone, jobsRoute, id, "%s had lost the lease of its job %s at %s, and nothing happened to it", l.Worker, l.Job, l.At.Format(time.TimeOnly))
		}
	}
	for _, runs := range keys {
		e.alone(v, runs)
	}
	for _, run := range e.runs {
		if run.After != nil {
			v.Jobs.Waited++
		}
		if len(run.After) >= crowd {
			v.Jobs.ManyWaited++
		}
		for _, id := range run.After {
			if _, cancelled := e.cancelled[id]; cancelled || e.forgotten(id) || slices.ContainsFunc(of[id], refused) {
				continue
			}
			if done := firstDone(of[id]); done.IsZero() || run.Begun.Before(done) {
				v.found(outOfOrder, jobsRoute, run.ID, "its job began before that of %s was done, for which it waits", id)
			}
		}
	}
	for key, all := range facts {
		slices.SortFunc(all, func(a, b message) int { return cmp.Compare(a.N, b.N) })
		var before message
		var free time.Time // when those before were done
		for _, m := range all {
			if len(of[m.ID]) == 0 {
				continue // it is lost, or replaced
			}
			if begun := of[m.ID][0].Begun; begun.Before(free) {
				v.found(outOfOrder, jobsRoute, m.ID, "number %d of key %s began %s before number %d (message %s) was done", m.N, key, free.Sub(begun), before.N, before.ID)
			}
			if done := firstDone(of[m.ID]); done.After(free) {
				free, before = done, m
			}
		}
	}
}

// firstDone is when a job was done first; its runs are ordered by their begin.
func firstDone(runs []*jobRun) (at time.Time) {
	for _, run := range runs {
		if run.Status == jobDone && (at.IsZero() || run.Ended.Before(at)) {
			at = run.Ended
		}
	}
	return at
}

// doneOnce checks that no run begins without need after one that was done, and returns when the first was.
func (e *evidence) doneOnce(v *verdict, runs []*jobRun) time.Time {
	for i, run := range runs {
		if i == 0 {
			continue
		}
		v.Jobs.Again++
		for _, before := range runs[:i] {
			if before.Status != jobDone || !before.Ended.Before(run.Begun) {
				continue
			}
			// The end of a job is written with the next claim, or soon.
			if to := before.Ended.Add(lease); !e.excused(before.Worker, before.Begun, earlier(to, run.Begun)) && !e.late(run) {
				v.found(unexplained, jobsRoute, run.ID, "its job ran again in %s after it was done in %s, and nothing happened in between", run.Worker, before.Worker)
			}
			break
		}
	}
	return firstDone(runs)
}

// notAfter checks that a job that was certainly cancelled did not begin later. Its worker may have had it already, and learns of it
// when it extends its leases.
func (e *evidence) notAfter(v *verdict, c cancellation, runs []*jobRun) {
	for _, run := range runs {
		if c.Certain && run.Begun.After(c.To.Add(lease)) && !e.lostWAL(c.From, c.To) && !e.excused(run.Worker, c.From, run.Begun) {
			v.found(cancelRan, jobsRoute, run.ID, "its job began %s after it was cancelled", run.Begun.Sub(c.To))
		}
	}
}

// alone checks that of these runs, which are ordered by their begin, each ended before the next one began.
func (e *evidence) alone(v *verdict, runs []*jobRun) {
	for i, run := range runs {
		for _, before := range runs[:i] {
			until := before.Ended
			if before.Status == 0 { // the worker was killed: its lease was just extended
				until = until.Add(lease / 3)
			}
			if c, was := e.cancelled[before.ID]; was && c.From.Before(until) {
				until = c.From
			}
			if run.Begun.Before(until) && !e.excused(before.Worker, before.Begun, run.Begun, "worker_killed") && !e.late(run) {
				v.found(together, jobsRoute, run.ID, "its job began in %s while that of %s ran in %s", run.Worker, before.ID, before.Worker)
			}
		}
	}
}

// late reports whether a run's own lease may have ended before it began: its worker stood still while it sent the job to the handler.
func (e *evidence) late(run *jobRun) bool {
	return slices.ContainsFunc(e.events, func(x *event) bool {
		return x.Name == "worker_paused" && x.Holder == run.Worker && x.overlaps(run.Begun.Add(-slack/4), run.Begun)
	})
}

// excused reports whether something other than the given faults may have cost a worker its leases between two moments.
func (e *evidence) excused(worker string, from, to time.Time, except ...string) bool {
	from, to = from.Add(-slack), to.Add(slack)
	return slices.ContainsFunc(e.events, func(x *event) bool {
		return x.concerns(jobsRoute) && (x.Holder == "" || x.Holder == worker) && !slices.Contains(except, x.Name) && x.strikes(from, to)
	})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
