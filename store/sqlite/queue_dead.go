package sqlite

import (
	"context"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/tables"
)

// DeadJobCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) (found []admin.DeadCause, err error) {
	row, err := s.queues.Queue(q.Queue).Row(ctx)
	if err != nil {
		return nil, err
	}
	b := &tables.Batch{}
	b.Rows(func(scan tables.Scan) error {
		var c admin.DeadCause
		err := scan(&c.Error, &c.Letters, &c.First, &c.Last)
		found = append(found, c)
		return err
	}, "dead_job_causes", row.DeadJobArgs(q))
	return found, onTables{s}.Run(ctx, b)
}
