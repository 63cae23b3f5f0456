package postgres_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// alone passes for a transaction where a test needs none: each statement is one.
type alone struct {
	pgx.Tx
	conn *pgx.Conn
}

func (a alone) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return a.conn.Exec(ctx, sql, args...)
}

func (a alone) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return a.conn.Query(ctx, sql, args...)
}

// asTx is a transaction, or the connection alone.
func asTx(on querier) pgx.Tx {
	if conn, ok := on.(*pgx.Conn); ok {
		return alone{conn: conn}
	}
	return on.(pgx.Tx)
}

// aloneSQL is the same for database/sql.
type aloneSQL struct{ *sql.DB }

func (aloneSQL) Rollback() error { return nil }
