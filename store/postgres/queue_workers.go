package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
)

var (
	_ driver.Heartbeater = (*Queue)(nil)
	_ driver.WorkerStore = (*Store)(nil)
)

// Heartbeat implements driver.Heartbeater. It is one INSERT.
func (q *Queue) Heartbeat(ctx context.Context, w admin.Worker) error {
	if err := penstock.ValidateText("worker", w.Name, penstock.MaxHolderBytes); err != nil {
		return err
	}
	report, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = q.store.pool.Exec(ctx, q.report, q.name, int64(0), report)
	return q.failed(ctx, err)
}

// Workers implements driver.WorkerStore. It reads heartbeats of the last ten minutes, the latest first, and no more than 5,000 of a queue. With
// more than 1,250 workers those that have been silent are left out first.
func (s *Store) Workers(ctx context.Context, queue string, most int) ([]admin.Worker, error) {
	if err := admin.ValidateLimit(most); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := lookUp(ctx, s, func(row pgx.CollectableRow) (w admin.Worker, err error) {
		var of, name string
		var report []byte
		var seen, until time.Time
		if err := row.Scan(&of, &name, &report, &seen, &until); err != nil {
			return w, err
		}
		_ = json.Unmarshal(report, &w) // by whatever client: parts of another form stay empty
		w.Queue, w.Name, w.SeenAt, w.AliveUntil = of, name, seen.UTC(), until.UTC()
		return w, nil
	}, statement("workers", s.schema, ""), queue, most)
	return all, s.explain(err)
}
