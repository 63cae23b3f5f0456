package mysql

import (
	"context"
	"database/sql"
)

// Names lists what there is: "outboxes", "queues", "inboxes" or "subscriptions", in order of their bytes.
func (s *Store) Names(ctx context.Context, of string) (names []string, err error) {
	if err := s.use(ctx); err != nil {
		return nil, err
	}
	column := "name"
	if of == "inboxes" {
		column = "consumer"
	}
	b := &batch{}
	b.read(func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	}, s.sql("select distinct "+column+" as name from {schema}."+of+" order by name", "", nil))
	return names, s.explain(s.ask(ctx, b))
}
