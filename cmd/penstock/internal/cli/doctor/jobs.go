package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/shell"
)

// jobs reports jobs that fail and are tried again, schedules that no worker fires, and barriers that no program seals.
func (e *examination) jobs(ctx context.Context, now *look) error {
	for i := range now.queues {
		q := &now.queues[i]
		found, n, err := cli.Failing(ctx, e.store, q)
		if err != nil {
			return err
		}
		if n > 0 {
			e.add(doctor.Finding{Check: doctor.CheckFailing, Severity: doctor.Warning, About: q.Queue, Found: found,
				Measured: []doctor.Figure{{Name: "jobs", Value: float64(n)}},
				Why:      "after its last attempt each becomes a dead letter",
				Next:     "repair the handler: they are tried again by themselves. The queue's page of penstock console has them under delayed, with every attempt"})
		}
		found, schedules, overdue, err := cli.Overdue(ctx, e.store, q, e.o.Old, now.at)
		if err != nil {
			return err
		}
		if found != "" {
			e.add(doctor.Finding{Check: doctor.CheckSchedules, Severity: doctor.Warning, About: q.Queue, Found: found,
				Measured: []doctor.Figure{{Name: "schedules", Value: float64(schedules)}, {Name: "overdue", Value: overdue.Seconds(), Unit: "s"}},
				Why:      "workers of the queue enqueue the jobs of its schedules; one job then makes up for all missed times",
				Next:     startWorkers + "penstock work " + shell.Word(q.Queue) + " --exec COMMAND"})
		}
		found, barrier, err := cli.Unsealed(ctx, e.store, q, e.o.Old, now.at)
		if err != nil {
			return err
		}
		if found != "" {
			e.add(doctor.Finding{Check: doctor.CheckBarriers, Severity: doctor.Warning, About: q.Queue, Found: found,
				Measured: []doctor.Figure{{Name: "barrier", Value: float64(barrier.Barrier)}, {Name: "waiting", Value: float64(barrier.Waiting)}, {Name: "not ended", Value: float64(barrier.Running)},
					{Name: "oldest", Value: now.at.Sub(barrier.Since).Seconds(), Unit: "s"}},
				Why:  "a barrier opens only after it is sealed, so these jobs never start",
				Next: cli.SealNext(q.Queue, barrier)})
		}
	}
	return nil
}

// kinds names those that no worker has taken, among the dead letters of queues.
func (e *examination) kinds(ctx context.Context) {
	const most = 1000
	store, ok := e.store.(cli.DeadJobStore)
	if !ok {
		return
	}
	for i := range e.found {
		f := &e.found[i]
		if f.Check != doctor.CheckDead || f.Severity == doctor.OK {
			continue
		}
		dead, err := store.DeadJobs(ctx, admin.DeadJobQuery{Queue: f.About, Error: "no handler for kind", Limit: most, Bytes: 1 << 20})
		if err != nil || len(dead) == 0 {
			continue // a subscription, or the count is enough
		}
		of := map[string]int{}
		for j := range dead {
			of[dead[j].Job.Kind()]++
		}
		f.Found += "; no worker has a handler for"
		for n, kind := range slices.Sorted(maps.Keys(of)) {
			if n == 3 {
				f.Found += fmt.Sprintf(" and %d more kinds", len(of)-n)
				break
			}
			f.Found += fmt.Sprintf(" %q (%d)", kind, of[kind])
		}
	}
}
