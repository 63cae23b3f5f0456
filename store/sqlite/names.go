package sqlite

import (
	"context"
	"database/sql"
)

// namesIn lists names, by what they name.
var namesIn = map[string]string{
	"outboxes": `select name from penstock_outboxes order by 1`, "queues": `select name from penstock_queues order by 1`,
	"inboxes": `select consumer from penstock_inboxes order by 1`, "subscriptions": `select distinct name from penstock_subscriptions order by 1`,
}

// Names lists the outboxes, queues, inboxes or subscriptions there are, by name. Unlike
// Status it reads nothing else, so it is quick whatever is in them.
func (s *Store) Names(ctx context.Context, of string) (names []string, err error) {
	query, known := namesIn[of]
	if !known {
		return nil, nil
	}
	err = s.read(ctx, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			names = append(names, name)
		}
		return rows.Err()
	})
	return names, err
}
