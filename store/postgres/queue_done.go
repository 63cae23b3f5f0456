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

// DoneJobs implements driver.HistoryStore. It reads only the pages on which they are, and at most 16 MB per call.
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
	var text []byte
	err = s.pool.QueryRow(ctx, "select "+s.table("_done_of")+"($1, $2, $3, nullif($4::bigint[], '{}'))", q.Queue, q.Limit, orNull(q.After), q.IDs).Scan(&text)
	if err != nil {
		return nil, "", s.queueError(ctx, q.Queue, err)
	}
	var page struct {
		Jobs []struct {
			admin.DoneJob
			Group    string          `json:"group_key"`
			Failures json.RawMessage `json:"failures"`
		} `json:"jobs"`
		Next string `json:"next"`
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, "", err
	}
	for _, j := range page.Jobs {
		var h pg.History
		if text := string(j.Failures); text != "" && text != "null" {
			h.Parse(j.Failures)
		}
		if string(j.Report) == "null" {
			j.Report = nil
		}
		j.DoneJob.Group, j.DoneJob.Failures = j.Group, h.Failures
		j.CreatedAt, j.ClaimedAt, j.FinishedAt = j.CreatedAt.UTC(), j.ClaimedAt.UTC(), j.FinishedAt.UTC()
		jobs = append(jobs, j.DoneJob)
	}
	return jobs, page.Next, nil
}
