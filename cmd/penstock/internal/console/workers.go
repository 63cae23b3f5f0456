package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

// Worker is a worker with the jobs that it runs.
type Worker struct {
	admin.Worker
	// State is working, idle, stopped, silent (its heartbeats have stopped), or unknown: it has leases and sends no heartbeats.
	State string `json:"state"`
	// Jobs are the ids of up to 1,000 jobs that it has leased.
	Jobs []int64 `json:"jobs"`
}

// Workers are those that the database knows.
type Workers struct {
	Items []Worker `json:"items"`
	// Heartbeats says that the database keeps heartbeats. Without them it knows only the workers that have jobs.
	Heartbeats bool `json:"heartbeats"`
}

func (c *Console) workers(ctx context.Context, r *call) (all Workers, err error) {
	queue := r.FormValue("queue")
	all.Items = []Worker{}
	of := map[[2]string]int{}
	if store, ok := c.o.Store.(driver.WorkerStore); ok {
		all.Heartbeats = true
		found, err := store.Workers(ctx, queue, countedUpTo)
		if err != nil {
			return all, err
		}
		for _, w := range found {
			of[[2]string{w.Queue, w.Name}] = len(all.Items)
			all.Items = append(all.Items, Worker{Worker: w, State: stateOf(w, time.Now()), Jobs: []int64{}})
		}
	}
	if store, ok := c.o.Store.(running); ok {
		found, err := store.Running(ctx, queue, countedUpTo)
		if err != nil {
			return all, err
		}
		for _, job := range found {
			at, known := of[[2]string{job.Queue, job.Worker}]
			if !known {
				at = len(all.Items)
				of[[2]string{job.Queue, job.Worker}] = at
				all.Items = append(all.Items, Worker{Worker: admin.Worker{Queue: job.Queue, Name: job.Worker}, State: "unknown", Jobs: []int64{}})
			}
			w := &all.Items[at]
			w.Jobs = append(w.Jobs, job.ID)
			w.Running = max(w.Running, len(w.Jobs))
		}
	}
	slices.SortFunc(all.Items, func(a, b Worker) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

func stateOf(w admin.Worker, now time.Time) string {
	switch {
	case w.Stopped:
		return "stopped"
	case w.AliveUntil.Before(now):
		return "silent"
	case w.Running > 0:
		return "working"
	}
	return "idle"
}

// mostJobsShown are the jobs of a worker on the page.
const mostJobsShown = 10

// Some are the first jobs, for the page.
func (w Worker) Some() []int64 { return w.Jobs[:min(len(w.Jobs), mostJobsShown)] }

// Others is how many there are behind these.
func (w Worker) Others() int { return w.Running - len(w.Some()) }

type workersData struct {
	Workers
	Finds  bool
	Relays []admin.OutboxStatus
}

func (c *Console) workersPage(ctx context.Context, r *call) (string, any, error) {
	var d workersData
	s, err := c.readStatus(ctx)
	if err != nil {
		return "", nil, err
	}
	_, d.Finds = c.o.Store.(finders)
	d.Relays = s.Outboxes
	d.Workers, err = c.workers(ctx, r)
	return "Workers", d, err
}
