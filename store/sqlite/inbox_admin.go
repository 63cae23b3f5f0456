package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/penstock/penstock"
)

// CreateInbox makes an inbox for a consumer, which knows ids for at least keep after
// they were received; 0 means penstock.DefaultInboxKeep. Errors: *penstock.FieldError,
// ErrInboxExists.
func (s *Store) CreateInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateConsumer(consumer); err != nil {
		return err
	}
	if keep == 0 {
		keep = penstock.DefaultInboxKeep
	}
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	return s.changeInbox(ctx, fmt.Errorf("%w: of %q", penstock.ErrInboxExists, consumer),
		`insert into penstock_inboxes (consumer, keep, created_at) values (?, ?, ?) on conflict do nothing`,
		consumer, keep.Microseconds(), time.Now().UnixMicro())
}

// SetInbox changes how long an inbox knows ids. Errors: *penstock.FieldError, ErrNoInbox.
func (s *Store) SetInbox(ctx context.Context, consumer string, keep time.Duration) error {
	if err := penstock.ValidateInboxKeep(keep); err != nil {
		return err
	}
	return s.changeInbox(ctx, noInbox(consumer), `update penstock_inboxes set keep = ? where consumer = ?`, keep.Microseconds(), consumer)
}

// changeInbox returns unchanged if the statement changes nothing.
func (s *Store) changeInbox(ctx context.Context, unchanged error, statement string, args ...any) error {
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return unchanged
	})
}

// DropInbox removes an inbox with all it knows and holds back. Error: ErrNoInbox.
func (s *Store) DropInbox(ctx context.Context, consumer string) error {
	return s.onInbox(ctx, consumer, func(ctx context.Context, tx *sql.Tx, box inboxRow) error {
		for _, statement := range []string{
			`delete from penstock_received where inbox_id = ?`,
			`delete from penstock_gaps where inbox_id = ?`,
			`delete from penstock_held where inbox_id = ?`,
			`delete from penstock_heads where inbox_id = ?`,
			`delete from penstock_inboxes where id = ?`,
		} {
			if _, err := tx.ExecContext(ctx, statement, box.id); err != nil {
				return err
			}
		}
		return nil
	})
}
