package postgres

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
)

// GrantEnqueuer lets a role write jobs to one queue and do nothing else. Like all
// grants here it is for the owner of the schema to make, and to make twice is no
// error. Errors: ErrNoQueue, and a *penstock.FieldError for a role that there is not.
func (s *Store) GrantEnqueuer(ctx context.Context, queue, role string) error {
	return s.grant(ctx, "grant_enqueuer", queue, role)
}

// GrantWorker lets a role run the jobs of one queue. It can neither enqueue nor read
// what it has not claimed.
func (s *Store) GrantWorker(ctx context.Context, queue, role string) error {
	return s.grant(ctx, "grant_worker", queue, role)
}

// GrantOperator lets a role look after one queue: QueueStatus, which then describes
// those queues alone that were granted; dead letters, with their payloads; pause and
// resume; CancelJobs. It can neither enqueue nor run jobs, nor change other settings.
func (s *Store) GrantOperator(ctx context.Context, queue, role string) error {
	return s.grant(ctx, "grant_operator", queue, role)
}

func (s *Store) grant(ctx context.Context, function, queue, role string) error {
	if !canBeRole(role) {
		return noRole(role)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.hasQueue(ctx, queue); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, "select "+s.table(function)+"($1, $2)", queue, role)
	if sqlState(err) == "42704" {
		return noRole(role)
	}
	return s.explain(err)
}

func noRole(role string) error {
	return &penstock.FieldError{Field: "role", Problem: fmt.Sprintf("%q does not exist", role), Hint: "make it first: create role … login"}
}

// canBeRole is false of a name that the server would cut off: at the name of another
// role, perhaps.
func canBeRole(role string) bool { return role != "" && len(role) <= 63 }
