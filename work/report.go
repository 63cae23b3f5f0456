package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Report replaces the report of the job that a handler runs: its progress, or its result. The results of its steps stay, see Step. ctx is the context
// that Run gave the handler, or one made from it. The report is encoded as JSON of up to penstock.MaxReportBytes. The next attempt has it as Job.Report.
// A queue that keeps jobs after they were acked keeps it with the job, see driver.HistoryStore. Each Report is a call of the database. It returns an
// error outside of a handler, for a queue that is not a driver.Reporter, and penstock.ErrLeaseLost.
func Report(ctx context.Context, report any) error {
	job, q, err := reporter(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("the report as JSON: %w", err)
	}
	return q.Report(ctx, job.job.Lease, text)
}

// reporter finds the job that a handler runs, and its queue.
func reporter(ctx context.Context) (*jobContext, driver.Reporter, error) {
	job, ok := ctx.Value(jobKey{}).(*jobContext)
	if !ok {
		return nil, nil, penstock.WithHint(errors.New("this context belongs to no job"), "pass the context that Run gave the handler, or one made from it")
	}
	q, ok := job.queue.(driver.Reporter)
	if !ok {
		return nil, nil, penstock.WithHint(errors.New("this queue keeps no reports"), "a queue in PostgreSQL or SQLite does")
	}
	return job, q, nil
}
