package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
)

// Report says of the job that a handler runs, whose context ctx is or comes from, how far it is, or what came of it: as JSON of up to
// penstock.MaxReportBytes, until the next Report. With a job that is done it is kept where the queue keeps such
// jobs, see driver.HistoryStore. It is a call of the database, so a job that reports takes longer.
func Report(ctx context.Context, report any) error {
	job, ok := ctx.Value(jobKey{}).(*jobContext)
	if !ok {
		return penstock.WithHint(errors.New("there is no job to report of"), "pass the context that Run gave the handler, or one made from it")
	}
	q, ok := job.queue.(driver.Reporter)
	if !ok {
		return penstock.WithHint(errors.New("this queue keeps no reports"), "a queue in PostgreSQL does")
	}
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("the report as JSON: %w", err)
	}
	return q.Report(ctx, job.lease, text)
}
