package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// namesIn is where names are, by the kind of object.
var namesIn = map[string][2]string{
	"outboxes": {"_outbox", "name"}, "queues": {"_queue", "name"}, "inboxes": {"_inbox", "consumer"}, "subscriptions": {"_subscription", "name"},
	"adopted": {"_adopt_subscription", "name"}, "roles": {"", "rolname"},
}

// Names lists outboxes, queues, inboxes, subscriptions, subscriptions of adopted tables, or the server's
// roles, ordered by name. Unlike Status it reads nothing else, so it is quick.
func (s *Store) Names(ctx context.Context, of string) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	in, known := namesIn[of]
	if !known {
		return nil, nil
	}
	from := s.table(in[0])
	if of == "roles" {
		from = "(select rolname::text from pg_roles where rolname !~ $re$^pg_$re$) r" // but for the server's own
	}
	names, err := list(ctx, s.pool, pgx.RowTo[string], "select distinct "+in[1]+" from "+from+" order by 1")
	return names, s.explain(err)
}
