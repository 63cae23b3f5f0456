package pg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/pgerror"
)

// DropSchema removes a schema, its name quoted, with everything in it. A statement of a caller that was interrupted may
// end only now. After a deadlock with it, it is tried again.
func DropSchema(ctx context.Context, pool *pgxpool.Pool, schema string) (err error) {
	for range 6 {
		if _, err = pool.Exec(ctx, "drop schema if exists "+schema+" cascade"); pgerror.State(err) != "40P01" {
			break
		}
	}
	return err
}
