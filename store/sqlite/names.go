package sqlite

import (
	"context"

	"github.com/penstock/penstock/internal/tables"
)

// Names lists outboxes, queues, inboxes or subscriptions, ordered by name. Unlike Status it
// reads nothing else, so it is quick.
func (s *Store) Names(ctx context.Context, of string) ([]string, error) {
	return tables.Names(ctx, onTables{s}, of)
}
