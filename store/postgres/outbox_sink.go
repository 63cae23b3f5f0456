package postgres

import (
	"context"
	"time"

	"github.com/penstock/penstock"
)

// ReportSink implements driver.SinkReporter.
func (src *Source) ReportSink(ctx context.Context, down time.Time, why string) error {
	if src.req.Ephemeral {
		return nil
	}
	if _, err := src.session(ctx); err != nil {
		return err
	}
	held, err := call[bool](ctx, src.store, "_report_sink", "($1, $2, $3, $4)", src.id, src.epoch, orNullTime(down), why)
	if err == nil && !held {
		return penstock.ErrFenced
	}
	return err
}
