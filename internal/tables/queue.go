package tables

import (
	"fmt"

	"github.com/penstock/penstock"
)

// NoOutbox has the name.
func NoOutbox(name string) error {
	return penstock.WithHint(fmt.Errorf("%w: %q", penstock.ErrNoOutbox, name), "penstock outbox list shows those there are")
}

// NoSubscription of the outbox has the name.
func NoSubscription(outbox, name string) error {
	return penstock.WithHint(fmt.Errorf("subscription %q of outbox %q: %w", name, outbox, penstock.ErrNoSubscription),
		"see its subscriptions with: penstock status; a relay makes one when it reads for the first time")
}

// NoQueue has the name.
func NoQueue(name string) error {
	return penstock.WithHint(fmt.Errorf("queue %q: %w", name, penstock.ErrNoQueue), "create it with: penstock queue create")
}

// NoSchedule of the queue has the name.
func NoSchedule(queue, name string) error {
	return penstock.WithHint(fmt.Errorf("schedule %q of queue %q: %w", name, queue, penstock.ErrNoSchedule), "see those it has with: penstock schedule list %s", queue)
}

// LeaseLost says that the lease is not held.
func LeaseLost(queue string, lease int64) error {
	return penstock.WithHint(fmt.Errorf("lease %d of queue %q: %w", lease, queue, penstock.ErrLeaseLost), "extend leases before they end, or claim with longer ones")
}

// Taken says that an outbox or a queue, has, has the name that one of kind was to get.
func Taken(kind, name, has string) error {
	exists, article := penstock.ErrQueueExists, "a"
	if has == "outbox" {
		exists, article = penstock.ErrOutboxExists, "an"
	}
	if has == kind {
		return fmt.Errorf("%s %q: %w", kind, name, exists)
	}
	return penstock.WithHint(fmt.Errorf("%s %q: %s %s has this name: %w", kind, name, article, has, exists), "outboxes and queues share their names: choose another")
}

// Dedup finds out which of jobs that are to be enqueued are there already.
type Dedup struct {
	Keys  []string // each once
	Seqs  []int64  // of the first with each
	drawn []int64
}

// NewDedup of jobs that have the numbers drawn, which may be none if no job has a DedupKey.
func NewDedup(jobs []penstock.NewJob, drawn []int64) *Dedup {
	d := &Dedup{drawn: drawn}
	first := map[string]bool{}
	for i := range jobs {
		if k := jobs[i].DedupKey; k != "" && !first[k] {
			first[k] = true
			d.Keys, d.Seqs = append(d.Keys, k), append(d.Seqs, drawn[i])
		}
	}
	return d
}

// Made is what becomes of the jobs. known are the numbers of the jobs that came first with each key.
func (d *Dedup) Made(jobs []penstock.NewJob, known map[string]int64, made []penstock.Enqueued) {
	for i := range jobs {
		made[i].ID = d.drawn[i]
		if k := jobs[i].DedupKey; k != "" && known[k] != d.drawn[i] {
			made[i] = penstock.Enqueued{ID: known[k], Deduplicated: true}
		}
	}
}

// HasDedup: a job has a DedupKey. Each is validated.
func HasDedup(jobs []penstock.NewJob) (dedup bool, err error) {
	for i := range jobs {
		if err := jobs[i].Validate(); err != nil {
			return false, fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
		dedup = dedup || jobs[i].DedupKey != ""
	}
	return dedup, nil
}
