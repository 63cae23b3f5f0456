package sqlite

import (
	"context"

	"github.com/penstock/penstock/admin"
)

// DeadJobCauses counts the dead letters that q chooses by their last errors, the most frequent first.
func (s *Store) DeadJobCauses(ctx context.Context, q admin.DeadJobQuery) (found []admin.DeadCause, err error) {
	row, err := s.queues.Queue(q.Queue).Row(ctx)
	if err != nil {
		return nil, err
	}
	err = onTables{s}.causes(ctx, &found, "dead_job_causes", row.DeadJobArgs(q))
	return found, err
}
