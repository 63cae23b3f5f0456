package portable

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// bytes are what a table takes with its indexes, 0 where the engine does not tell.
func (s *Store) bytes(ctx context.Context, table string) (n int64, err error) {
	if !s.dialect().unsized {
		err = s.pool.QueryRow(ctx, "select pg_total_relation_size($1::regclass)", table).Scan(&n)
	}
	return n, err
}

// Names lists what there is: "outboxes", "queues", "inboxes" or "subscriptions", in order of their bytes.
func (s *Store) Names(ctx context.Context, of string) (names []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	column := "name"
	if of == "inboxes" {
		column = "consumer"
	}
	rows, err := s.pool.Query(ctx, s.sql(`select distinct `+column+` {collate} as name from {schema}.`+of+` order by name`, ""))
	if err != nil {
		return nil, s.explain(err)
	}
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return names, s.explain(err)
}
