package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// namesIn is where names are, by what they name.
var namesIn = map[string][2]string{
	"outboxes": {"_outbox", "name"}, "queues": {"_queue", "name"}, "inboxes": {"_inbox", "consumer"}, "subscriptions": {"_subscription", "name"},
}

// Names lists the outboxes, queues, inboxes or subscriptions there are, by name. Unlike
// Status it looks at nothing else, so it is quick whatever is in them.
func (s *Store) Names(ctx context.Context, of string) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	in, known := namesIn[of]
	if !known {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, "select distinct "+in[1]+" from "+s.table(in[0])+" order by 1")
	if err != nil {
		return nil, s.explain(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, s.explain(err)
}
