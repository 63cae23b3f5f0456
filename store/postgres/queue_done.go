package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/pg"
)

var _ driver.HistoryStore = (*Store)(nil)

var donePosition = regexp.MustCompile(`^\d{1,15}(\.\d{1,10}){3}$`)

// doneLooks is how many jobs a call looks at to find those of a kind, a part of them at a time.
const (
	doneLooks = 5000
	donePart  = 500
)

// DoneJobs implements driver.HistoryStore. It reads only the pages on which they are, and at most 16 MB per statement.
func (s *Store) DoneJobs(ctx context.Context, q admin.DoneJobQuery) (jobs []admin.DoneJob, next string, err error) {
	if q.Limit < 1 || q.Limit > driver.MaxClaim {
		return nil, "", &penstock.FieldError{Field: "limit", Problem: fmt.Sprintf("is %d", q.Limit), Hint: fmt.Sprintf("ask for 1 to %d at a time", driver.MaxClaim)}
	}
	if q.After != "" && !donePosition.MatchString(q.After) {
		return nil, "", &penstock.FieldError{Field: "after", Problem: "is not a position", Hint: "give the next that came with the page before"}
	}
	if err := s.ready(ctx); err != nil {
		return nil, "", err
	}
	next = q.After
	for looked := 0; ; looked += donePart {
		most := q.Limit
		if q.Kind != "" {
			most = donePart
		}
		page, err := s.donePage(ctx, q, next, most)
		if err != nil {
			return nil, "", err
		}
		next = page.Next
		for i := range page.Jobs {
			if q.Kind != "" && page.Jobs[i].Kind != q.Kind {
				continue
			}
			if jobs = append(jobs, page.Jobs[i].done()); len(jobs) == q.Limit && q.Kind != "" {
				return jobs, page.Jobs[i].Position, nil
			}
		}
		if q.Kind == "" || next == "" || looked+donePart >= doneLooks {
			return jobs, next, nil
		}
	}
}

// donePage is an answer of the function done_jobs of a queue.
type donePage struct {
	Jobs []doneJob `json:"jobs"`
	Next string    `json:"next"`
}

type doneJob struct {
	admin.DoneJob
	Group    string          `json:"group_key"`
	Failures json.RawMessage `json:"failures"`
	Position string          `json:"position"`
}

func (j *doneJob) done() admin.DoneJob {
	d := j.DoneJob
	if text := string(j.Failures); text != "" && text != "null" {
		var h pg.History
		h.Parse(j.Failures)
		d.Failures = h.Failures
	}
	if string(d.Report) == "null" {
		d.Report = nil
	}
	d.Group, d.CreatedAt, d.ClaimedAt, d.FinishedAt = j.Group, d.CreatedAt.UTC(), d.ClaimedAt.UTC(), d.FinishedAt.UTC()
	return d
}

func (s *Store) donePage(ctx context.Context, q admin.DoneJobQuery, after string, most int) (page donePage, err error) {
	var text []byte
	err = s.pool.QueryRow(ctx, "select "+s.table("_done_of")+"($1, $2, $3, nullif($4::bigint[], '{}'))", q.Queue, most, orNull(after), q.IDs).Scan(&text)
	if err != nil {
		return page, s.queueError(ctx, q.Queue, err)
	}
	return page, json.Unmarshal(text, &page)
}
