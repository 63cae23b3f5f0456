package pg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/pgerror"
)

// DropSchema removes a schema, whose name is quoted, with everything in it. A statement of an interrupted caller may
// still be running. After a deadlock with it, DropSchema tries again.
func DropSchema(ctx context.Context, pool *pgxpool.Pool, schema string) (err error) {
	for range 6 {
		if _, err = pool.Exec(ctx, "drop schema if exists "+schema+" cascade"); pgerror.State(err) != "40P01" {
			break
		}
	}
	return err
}
