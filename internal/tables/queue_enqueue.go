package tables

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock/penstock"
)

// Enqueuing is a transaction in which a dialect writes jobs.
type Enqueuing interface {
	// Note notes the dedup keys of jobs, whose places are in first, and returns the jobs of keys that were noted before and count. A dialect that draws
	// numbers before it notes them sets them in made, for all jobs.
	Note(ctx context.Context, first map[string]int, made []penstock.Enqueued) (known map[string]int64, err error)
	// Twins are of the queue.
	Twins(ctx context.Context) (Twins, error)
	// Insert writes the jobs at these places. It sets the numbers in made that are not set.
	Insert(ctx context.Context, jobs []penstock.NewJob, places []int, made []penstock.Enqueued) error
	// Noted writes the jobs of dedup keys, which Note did not know.
	Noted(ctx context.Context, keys []string, ids []int64) error
}

// Enqueue writes jobs that are not duplicates, by their dedup keys or by their unique keys, and returns a result for each.
func Enqueue(ctx context.Context, on Enqueuing, jobs []penstock.NewJob) ([]penstock.Enqueued, error) {
	made := make([]penstock.Enqueued, len(jobs))
	first := map[string]int{} // the place of each dedup key's first job
	for i := range jobs {
		if _, again := first[jobs[i].DedupKey]; !again && jobs[i].DedupKey != "" {
			first[jobs[i].DedupKey] = i
		}
	}
	var known map[string]int64
	var err error
	if len(first) > 0 {
		if known, err = on.Note(ctx, first, made); err != nil {
			return nil, err
		}
	}
	drawn := slices.Clone(made)
	for i := range jobs {
		if key := jobs[i].DedupKey; key != "" && (known[key] != 0 || first[key] != i) {
			made[i] = penstock.Enqueued{ID: known[key], Deduplicated: true}
		}
	}
	written, united := jobs, func() {}
	if slices.ContainsFunc(jobs, func(j penstock.NewJob) bool { return uniqueKey(&j) != "" }) {
		twins, err := on.Twins(ctx)
		if err != nil {
			return nil, err
		}
		if written, united, err = twins.Unite(ctx, jobs, made); err != nil {
			return nil, err
		}
	}
	var places []int
	for i := range made {
		if !made[i].Deduplicated {
			places = append(places, i)
		}
	}
	if len(places) > 0 {
		if err := on.Insert(ctx, written, places, made); err != nil {
			return nil, err
		}
	}
	united()
	var keys []string
	var ids []int64
	for i := range jobs {
		key := jobs[i].DedupKey
		if key == "" || known[key] != 0 {
			continue
		}
		if made[i].ID = made[first[key]].ID; first[key] == i && made[i].ID != drawn[i].ID {
			keys, ids = append(keys, key), append(ids, made[i].ID)
		}
	}
	if keys != nil {
		err = on.Noted(ctx, keys, ids)
	}
	return made, err
}

// ValidateJob also refuses what a store of plain tables cannot keep to. barriers: it can keep to these.
func ValidateJob(j *penstock.NewJob, barriers bool) error {
	if err := j.Validate(); err != nil {
		return err
	}
	all := *j
	if len(j.Headers) > 0 {
		all.ReadHeaders()
	}
	field := ""
	switch {
	case all.Holds != 0 && !barriers:
		field = "holds"
	case len(all.WaitsFor) > 0 && !barriers:
		field = "waits for"
	default:
		return nil
	}
	return &penstock.FieldError{Field: field, Problem: "is given, and this database's driver does not have it", Hint: "leave it out, or use PostgreSQL"}
}

// ValidateJobs is ValidateJob of each.
func ValidateJobs(jobs []penstock.NewJob, barriers bool) error {
	for i := range jobs {
		if err := ValidateJob(&jobs[i], barriers); err != nil {
			return fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
	}
	return nil
}
