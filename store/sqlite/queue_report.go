package sqlite

import (
	"context"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/tables"
)

var _ driver.Reporter = (*Queue)(nil)

// Report implements driver.Reporter.
func (q *Queue) Report(ctx context.Context, lease int64, report []byte) error {
	return onTables{q.store}.Within(ctx, func(tx tables.Tx) error { return q.report(ctx, tx, lease, report) })
}

// Reporter is the queue's Report within a transaction: it takes effect if tx commits. work.StepTx takes it. Begin with BEGIN IMMEDIATE, as for
// PublishTx. While tx is open no lease can be extended, so keep it short.
func (q *Queue) Reporter(tx Tx) driver.Reporter { return reporterTx{q, tx} }

type reporterTx struct {
	q  *Queue
	tx Tx
}

func (r reporterTx) Report(ctx context.Context, lease int64, report []byte) error {
	return r.q.store.explain(r.q.report(ctx, onOurs(r.tx), lease, report))
}

// report is kept with the failures of the job, which go where the job goes.
func (q *Queue) report(ctx context.Context, tx tables.Runner, lease int64, report []byte) error {
	row, err := q.store.queues.Queue(q.name).Row(ctx)
	if err != nil {
		return err
	}
	var held bool
	var seq int64
	var before string
	b := new(tables.Batch).Row(&held, "held_report", row.Args(tables.Args{"lease": lease}), &seq, &before)
	if err := tx.Run(ctx, b); err != nil {
		return err
	}
	if !held {
		return tables.LeaseLost(q.name, lease)
	}
	made, err := tables.Reported([]byte(before), report)
	if err != nil {
		return err
	}
	return tx.Run(ctx, new(tables.Batch).Do("report", row.Args(tables.Args{"seq": seq, "report": string(made)})))
}
