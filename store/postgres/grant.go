package postgres

import (
	"context"
	"fmt"

	"github.com/penstock/penstock"
)

// GrantProducer lets a role publish to one outbox and do nothing else. As for all grants
// here, only the owner of the schema can make it, and it can be repeated. Errors:
// ErrNoOutbox, and a *penstock.FieldError for a role that does not exist.
func (s *Store) GrantProducer(ctx context.Context, outbox, role string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if _, err := s.outboxIDs(ctx, s.pool, outbox); err != nil {
		return err
	}
	return s.grant(ctx, role, "select "+s.table("grant_producer")+"($2, $1)", outbox)
}

// GrantRelay lets a role run and operate the subscriptions of every outbox, also of later
// ones. It can neither publish nor change a message.
func (s *Store) GrantRelay(ctx context.Context, role string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.grant(ctx, role, "select "+s.table("grant_relay")+"($1)")
}

// GrantEnqueuer lets a role write jobs to one queue and do nothing else. Errors:
// ErrNoQueue, and a *penstock.FieldError for a role that does not exist.
func (s *Store) GrantEnqueuer(ctx context.Context, queue, role string) error {
	return s.grantQueue(ctx, "grant_enqueuer", queue, role)
}

// GrantWorker lets a role run the jobs of one queue. It can neither enqueue nor read
// jobs that it has not claimed.
func (s *Store) GrantWorker(ctx context.Context, queue, role string) error {
	return s.grantQueue(ctx, "grant_worker", queue, role)
}

// GrantOperator lets a role operate one queue: QueueStatus, dead letters with their
// payloads, pause and resume, and CancelJobs. QueueStatus then describes only granted
// queues. The role can neither enqueue nor run jobs, nor change other settings.
func (s *Store) GrantOperator(ctx context.Context, queue, role string) error {
	return s.grantQueue(ctx, "grant_operator", queue, role)
}

func (s *Store) grantQueue(ctx context.Context, function, queue, role string) error {
	if err := s.hasQueue(ctx, queue); err != nil {
		return err
	}
	return s.grant(ctx, role, "select "+s.table(function)+"($2, $1)", queue)
}

// grant runs a statement whose first parameter is the role.
func (s *Store) grant(ctx context.Context, role, statement string, args ...any) error {
	if !canBeRole(role) {
		return noRole(role)
	}
	_, err := s.pool.Exec(ctx, statement, append([]any{role}, args...)...)
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
