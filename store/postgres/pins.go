package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/admin"
)

// VacuumPins returns what holds back vacuum in this database: the oldest of each kind. To see other roles'
// sessions it needs the rights of pg_read_all_stats.
func (s *Store) VacuumPins(ctx context.Context) ([]admin.VacuumPin, error) {
	rows, err := s.pool.Query(ctx, statement("vacuum_pins", s.schema, ""))
	if err != nil {
		return nil, s.explain(err)
	}
	pins, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p admin.VacuumPin, err error) {
		var seconds float64
		err = row.Scan(&p.Kind, &p.Who, &seconds, &p.Transactions)
		p.Age = time.Duration(seconds * float64(time.Second))
		return p, err
	})
	return pins, s.explain(err)
}
