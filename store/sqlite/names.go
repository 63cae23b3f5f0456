package sqlite

import (
	"context"

	"github.com/penstock/penstock/internal/tables"
)

// Names lists the outboxes, queues, inboxes or subscriptions there are, by name. Unlike
// Status it reads nothing else, so it is quick whatever is in them.
func (s *Store) Names(ctx context.Context, of string) ([]string, error) {
	return tables.Names(ctx, onTables{s}, of)
}
