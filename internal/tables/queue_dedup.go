package tables

import (
	"fmt"

	"github.com/penstock/penstock"
)

// Dedup finds out which of the jobs to enqueue exist already.
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

// Made returns the result for each job. known are the numbers of the jobs that came first with each key.
func (d *Dedup) Made(jobs []penstock.NewJob, known map[string]int64, made []penstock.Enqueued) {
	for i := range jobs {
		made[i].ID = d.drawn[i]
		if k := jobs[i].DedupKey; k != "" && known[k] != d.drawn[i] {
			made[i] = penstock.Enqueued{ID: known[k], Deduplicated: true}
		}
	}
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

// HasDedup: a job may be a duplicate. Each is validated.
func HasDedup(jobs []penstock.NewJob, barriers bool) (dedup bool, err error) {
	for i := range jobs {
		if err := ValidateJob(&jobs[i], barriers); err != nil {
			return false, fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
		dedup = dedup || jobs[i].Deduplicates()
	}
	return dedup, nil
}
