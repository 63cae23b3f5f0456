package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// list reads the rows of a statement.
func list[T any](ctx context.Context, on querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// one reads the value that a statement returns.
func one[T any](ctx context.Context, on querier, sql string, args ...any) (T, error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}

// call calls one of Penstock's functions, and returns its result.
func call[T any](ctx context.Context, s *Store, function, params string, args ...any) (T, error) {
	result, err := one[T](ctx, s.pool, "select "+s.table(function)+params, args...)
	return result, s.explain(err)
}

// eachSQL calls each for the rows of a statement, by database/sql.
func eachSQL(ctx context.Context, tx SQLTx, each func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// oneSQL is one for a number, by database/sql.
func oneSQL(ctx context.Context, tx SQLTx, query string, args ...any) (n int64, err error) {
	err = eachSQL(ctx, tx, func(scan func(...any) error) error { return scan(&n) }, query, args...)
	return n, err
}
