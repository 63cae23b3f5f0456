package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

type scheduler interface {
	Schedules(ctx context.Context, queue string) ([]penstock.Schedule, error)
}

// jobs reports jobs that fail and are tried again, and schedules that no worker fires. A paused queue waits for its operator.
func (e *examination) jobs(ctx context.Context, now *look) error {
	store, ok := e.store.(scheduler)
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
		if !ok || cli.IsPaused(q.QueueSettings) {
			continue
		}
		if err := e.schedules(ctx, store, q.Queue, now); err != nil {
			return err
		}
	}
	return nil
}

// schedules reports those of a queue that are overdue.
func (e *examination) schedules(ctx context.Context, store scheduler, queue string, now *look) error {
	all, err := store.Schedules(ctx, queue)
	if err != nil && !errors.Is(err, penstock.ErrNoQueue) && !pgerror.IsForbidden(err) { // dropped meanwhile
		return err
	}
	all = slices.DeleteFunc(all, func(s penstock.Schedule) bool { return s.Paused || now.at.Sub(s.Next) < e.o.Old })
	if len(all) == 0 {
		return nil
	}
	longest := slices.MinFunc(all, func(a, b penstock.Schedule) int { return a.Next.Compare(b.Next) })
	f := doctor.Finding{Check: doctor.CheckSchedules, Severity: doctor.Warning, About: queue,
		Measured: []doctor.Figure{{Name: "schedules", Value: float64(len(all))}, {Name: "overdue", Value: now.at.Sub(longest.Next).Seconds(), Unit: "s"}},
		Found:    fmt.Sprintf("schedule %s of %s is overdue since %s UTC", longest.Name, queue, longest.Next.UTC().Format("2006-01-02 15:04")),
		Why:      "workers of the queue enqueue the jobs of its schedules; one job then makes up for all missed times",
		Next:     startWorkers + "penstock work " + shell.Word(queue) + " --exec COMMAND"}
	if more := len(all) - 1; more > 0 {
		f.Found += ", with " + terminal.Plural(int64(more), "other")
	}
	f.Found += ": no worker of the queue seems to run"
	e.add(f)
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
