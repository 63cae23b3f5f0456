package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/schema"
)

// Lacking names the missing columns, or returns "" if there are none. Any role may read the catalogue, and no table is locked for
// it.
func Lacking(ctx context.Context, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, in string, columns []schema.Column) (string, error) {
	var tables []string
	for _, c := range columns {
		tables = append(tables, c.Table)
	}
	rows, err := q.Query(ctx, `select c.relname::text, a.attname::text from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid
		join pg_catalog.pg_attribute a on a.attrelid = c.oid where n.nspname = $1 and c.relname = any ($2) and a.attnum > 0 and not a.attisdropped`, pgx.QueryExecModeExec, in, tables)
	if err != nil {
		return "", err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[schema.Column])
	if err != nil {
		return "", err
	}
	there := map[schema.Column]bool{}
	for _, c := range found {
		there[c] = true
	}
	return schema.Lacking(columns, func(c schema.Column) bool { return there[c] }), nil
}
