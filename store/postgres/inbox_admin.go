package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// CreateInbox makes an inbox for a consumer. It knows an id for at least keep after the
// message was received; 0 means penstock.DefaultInboxKeep. Errors: *penstock.FieldError,
// ErrInboxExists.
func (s *Store) CreateInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if keep == 0 {
		keep = penstock.DefaultInboxKeep
	}
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	err := s.inboxCall(ctx, consumer, "create_inbox", "($1, $2 * interval '1 microsecond')", consumer, keep.Microseconds())
	if state := sqlState(err); state == "42P07" || state == "23505" {
		return fmt.Errorf("%w: of %q", penstock.ErrInboxExists, consumer)
	}
	return err
}

// SetInbox changes how long an inbox knows ids. A longer time applies to messages that are
// received from then on. Errors: *penstock.FieldError, ErrNoInbox.
func (s *Store) SetInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	return s.inboxCall(ctx, consumer, "set_inbox", "($1, $2 * interval '1 microsecond')", consumer, keep.Microseconds())
}

// DropInbox removes an inbox with its ids and its held messages. Error: ErrNoInbox.
func (s *Store) DropInbox(ctx context.Context, consumer string) error {
	return s.aboutInbox(ctx, consumer, func() error { return s.drop(ctx, "drop_inbox", consumer) })
}

func (s *Store) inboxCall(ctx context.Context, consumer, function, params string, args ...any) error {
	return s.aboutInbox(ctx, consumer, func() error {
		_, err := s.pool.Exec(ctx, "select "+s.table(function)+params, args...)
		return err
	})
}

func (s *Store) aboutInbox(ctx context.Context, consumer string, call func() error) error {
	if err := penstock.ValidateConsumer(consumer); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.Inbox(consumer).explain(call())
}
