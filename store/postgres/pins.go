package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
)

// VacuumPins returns the holders of vacuum's horizon in this database: the oldest of each kind. Without the rights of pg_read_all_stats it does
// not see standbys, nor the ages of other roles' transactions. Then it returns the rest with an error of SQLSTATE 42501.
func (s *Store) VacuumPins(ctx context.Context) ([]admin.VacuumPin, error) {
	pins, err := list(ctx, s.pool, func(row pgx.CollectableRow) (p admin.VacuumPin, err error) {
		var seconds float64
		err = row.Scan(&p.Kind, &p.Who, &seconds, &p.Transactions)
		p.Age = time.Duration(seconds * float64(time.Second))
		return p, err
	}, statement("vacuum_pins", s.schema, ""))
	if err != nil {
		return nil, s.explain(err)
	}
	return pins, s.seesSessions(ctx)
}

// seesSessions is an error if the role is not shown the activity of other roles' sessions.
func (s *Store) seesSessions(ctx context.Context) error {
	var may bool
	var role string
	if err := s.pool.QueryRow(ctx, "select pg_has_role('pg_read_all_stats', 'usage'), quote_ident(current_user)").Scan(&may, &role); err != nil || may {
		return s.explain(err)
	}
	return penstock.WithHint(&pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "this role does not see the sessions of other roles"}, "a superuser can grant it: grant pg_read_all_stats to %s", role)
}
