package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/pg"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/shell"
	"github.com/penstock/penstock/internal/terminal"
)

// Troubles finds jobs of a queue that fail and are tried again, kinds that no worker takes, schedules that no worker fires and barriers that no program
// seals. The last two are so for at least that long at a time of the database. There are none where the store has no such things. refused has the parts that the role may not read, with the error of each.
func Troubles(ctx context.Context, store driver.QueueStore, q *admin.QueueStatus, age time.Duration, at time.Time) (all []doctor.Finding, refused map[string]error, err error) {
	refused = map[string]error{}
	for _, look := range []struct {
		what string
		find func(context.Context, driver.QueueStore, *admin.QueueStatus, time.Duration, time.Time) (doctor.Finding, error)
	}{
		{"jobs that fail", failing}, {"kinds without a worker", unhandled}, {"schedules", overdue}, {"barriers that are not sealed", unsealed},
	} {
		f, err := look.find(ctx, store, q, age, at)
		switch {
		case pgerror.IsForbidden(err):
			refused[look.what] = err
		case err != nil && !errors.Is(err, penstock.ErrNoQueue): // dropped meanwhile
			return nil, nil, err
		}
		if f.Found != "" {
			f.Severity, f.About = doctor.Warning, q.Queue
			all = append(all, f)
		}
	}
	return all, refused, nil
}

// failing counts those of the next hundred delayed jobs that have failed, and has the last error.
func failing(ctx context.Context, store driver.QueueStore, q *admin.QueueStatus, _ time.Duration, _ time.Time) (none doctor.Finding, err error) {
	if q.Delayed == 0 {
		return none, nil
	}
	page, err := store.ListJobs(ctx, admin.JobQuery{Queue: q.Queue, State: "delayed", Limit: 100})
	var jobs int64
	var last penstock.Failure
	kinds := map[string]bool{}
	of := ""
	var keyed []*penstock.Message // the first of each key
	for i := range page.Jobs {
		failures := page.Jobs[i].Where[0].Failures
		if len(failures) == 0 {
			continue
		}
		jobs++
		of = page.Jobs[i].Message.Headers[penstock.HeaderKind]
		kinds[of] = true
		if m := &page.Jobs[i].Message; m.Key != "" && len(keyed) < keysLookedUp && !slices.ContainsFunc(keyed, func(k *penstock.Message) bool { return k.Key == m.Key }) {
			keyed = append(keyed, m)
		}
		if f := failures[len(failures)-1]; !f.At.Before(last.At) {
			last = f
		}
	}
	if err != nil || jobs == 0 {
		return none, err
	}
	text := terminal.Plural(jobs, "job")
	if page.Next != "" {
		text = "at least " + text
	}
	if len(kinds) == 1 && of != "" {
		text += " of kind " + strconv.Quote(of)
	}
	if jobs == 1 {
		text += " has failed and waits for its next attempt"
	} else {
		text += " have failed and wait for their next attempt"
	}
	next := "repair the handler: they are tried again. To see them: penstock job list " + shell.Word(q.Queue) + " --state delayed"
	id, behind, err := blocked(ctx, store, q, keyed)
	if err != nil {
		return none, err
	}
	if behind != "" {
		text += "; " + behind
		next += fmt.Sprintf(". To run the jobs behind it without that one, which then counts as done: penstock job cancel %s %d", shell.Word(q.Queue), id)
	}
	reason, _, _ := strings.Cut(last.Err, "\n")
	return doctor.Finding{Check: doctor.CheckFailing, Found: fmt.Sprintf("%s; the last error, of attempt %d: %s", text, last.Attempt, reason),
		Measured: []doctor.Figure{{Name: "jobs", Value: float64(jobs)}},
		Why:      "after its last attempt each becomes a dead letter",
		Next:     next}, nil
}

const (
	keysLookedUp = 10   // of failed jobs
	behindKey    = 1000 // jobs are counted up to this
)

// blocked says of the failed job behind whose key most others wait how many do, and its id. It is empty if none waits.
func blocked(ctx context.Context, store driver.QueueStore, q *admin.QueueStatus, failed []*penstock.Message) (id int64, text string, err error) {
	if q.Waiting == 0 {
		return 0, "", nil
	}
	most := 0
	for _, m := range failed {
		page, err := store.ListJobs(ctx, admin.JobQuery{Queue: q.Queue, State: "waiting", Key: m.Key, Limit: behindKey})
		if err != nil {
			return 0, "", err
		}
		if n := len(page.Jobs); n > most {
			most, id = n, m.Seq
			waiting := terminal.PluralVerb(int64(n), "job", "waits", "wait")
			if page.Next != "" {
				waiting = "at least " + waiting
			}
			text = fmt.Sprintf("%s behind job %d, because of its key %s", waiting, id, strconv.Quote(m.Key))
		}
	}
	return id, text, nil
}

// unhandled counts delayed jobs of kinds for which no living worker of the queue has a handler: each of them reports the kind.
func unhandled(ctx context.Context, store driver.QueueStore, q *admin.QueueStatus, _ time.Duration, at time.Time) (none doctor.Finding, err error) {
	reader, ok := store.(driver.WorkerStore)
	if !ok || q.Delayed == 0 {
		return none, nil
	}
	workers, err := reader.Workers(ctx, q.Queue, CountedUpTo)
	workers = slices.DeleteFunc(workers, func(w admin.Worker) bool { return w.Stopped || w.AliveUntil.Before(at) })
	if err != nil || len(workers) == 0 {
		return none, err
	}
	kinds := slices.DeleteFunc(workers[0].Unhandled, func(kind string) bool {
		return slices.ContainsFunc(workers[1:], func(w admin.Worker) bool { return !slices.Contains(w.Unhandled, kind) })
	})
	if len(kinds) == 0 {
		return none, nil
	}
	page, err := store.ListJobs(ctx, admin.JobQuery{Queue: q.Queue, State: "delayed", Limit: 1000})
	of, jobs := map[string]int{}, 0
	for i := range page.Jobs {
		if kind := page.Jobs[i].Message.Headers[penstock.HeaderKind]; slices.Contains(kinds, kind) {
			of[kind]++
			jobs++
		}
	}
	if err != nil || jobs == 0 {
		return none, err
	}
	return doctor.Finding{Check: doctor.CheckKinds, Found: NoHandlerFor(of),
		Measured: []doctor.Figure{{Name: "kinds", Value: float64(len(of))}, {Name: "jobs", Value: float64(jobs)}},
		Why:      "such a job is given back for another worker, comes back after about 10 s, and becomes a dead letter an hour after it was enqueued",
		Next:     "start a worker that has the handler. If the kind is a typing error, correct it in the program that enqueues, and cancel the jobs: penstock job list " + shell.Word(q.Queue) + " --state delayed; penstock job cancel " + shell.Word(q.Queue) + " ID"}, nil
}

// NoHandlerFor names up to three kinds, with how many jobs each has.
func NoHandlerFor(of map[string]int) string {
	text := "no worker has a handler for"
	for n, kind := range slices.Sorted(maps.Keys(of)) {
		if n == 3 {
			return text + fmt.Sprintf(" and %d more kinds", len(of)-n)
		}
		text += fmt.Sprintf(" %q (%d)", kind, of[kind])
	}
	return text
}

// overdue has the schedule that is overdue for longest, but none of a paused queue.
func overdue(ctx context.Context, store driver.QueueStore, q *admin.QueueStatus, age time.Duration, at time.Time) (none doctor.Finding, err error) {
	if IsPaused(q.QueueSettings) {
		return none, nil
	}
	all, err := store.Schedules(ctx, q.Queue)
	all = slices.DeleteFunc(all, func(s penstock.Schedule) bool { return s.Paused || at.Sub(s.Next) < age })
	if err != nil || len(all) == 0 {
		return none, err
	}
	longest := slices.MinFunc(all, func(a, b penstock.Schedule) int { return a.Next.Compare(b.Next) })
	text := fmt.Sprintf("schedule %s of %s is overdue since %s UTC", longest.Name, q.Queue, longest.Next.UTC().Format("2006-01-02 15:04"))
	if more := len(all) - 1; more > 0 {
		text += ", with " + terminal.Plural(int64(more), "other")
	}
	return doctor.Finding{Check: doctor.CheckSchedules, Found: text + ": no worker of the queue seems to run",
		Measured: []doctor.Figure{{Name: "schedules", Value: float64(len(all))}, {Name: "overdue", Value: at.Sub(longest.Next).Seconds(), Unit: "s"}},
		Why:      "workers of the queue enqueue the jobs of its schedules; one job then makes up for all missed times",
		Next:     StartWorkers + "penstock work " + shell.Word(q.Queue) + " --exec COMMAND"}, nil
}

// unsealed has the barrier that jobs have waited for longest.
func unsealed(ctx context.Context, store driver.QueueStore, q *admin.QueueStatus, age time.Duration, at time.Time) (none doctor.Finding, err error) {
	reader, ok := store.(doctor.BarrierReader)
	if !ok || q.Waiting == 0 {
		return none, nil
	}
	all, err := reader.UnsealedBarriers(ctx, q.Queue)
	all = slices.DeleteFunc(all, func(b doctor.UnsealedBarrier) bool { return at.Sub(b.Since) < age })
	if err != nil || len(all) == 0 {
		return none, err
	}
	first := all[0]
	text := fmt.Sprintf("barrier %d is not sealed: %s for it, the oldest for %s; %s it and %s not ended", first.Barrier, terminal.PluralVerb(first.Waiting, "job", "waits", "wait"),
		Age(at.Sub(first.Since)), terminal.PluralVerb(first.Running, "job", "holds", "hold"), map[bool]string{true: "has", false: "have"}[first.Running == 1])
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf("; and %s", terminal.Plural(int64(more), "other barrier"))
	}
	return doctor.Finding{Check: doctor.CheckBarriers, Found: text,
		Measured: []doctor.Figure{{Name: "barrier", Value: float64(first.Barrier)}, {Name: "waiting", Value: float64(first.Waiting)}, {Name: "not ended", Value: float64(first.Running)},
			{Name: "oldest", Value: at.Sub(first.Since).Seconds(), Unit: "s"}},
		Why: "a barrier opens only after it is sealed, so these jobs never start",
		Next: fmt.Sprintf("seal it in the program that made it, once all jobs that hold it are enqueued; by hand on PostgreSQL: select penstock.seal(%s, %d)",
			pg.Literal(q.Queue), first.Barrier)}, nil
}
