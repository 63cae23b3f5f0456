package adopt

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

// fenced is the SQLSTATE of _adopt_fence.
const fenced = "PS001"

// hints by SQLSTATE, where they are about the adopted table.
var hints = map[string]string{
	"42501": "grant the role what it lacks on the adopted table; on Penstock's own tables its owner can: select penstock.grant_adopt('role')",
	"55P03": "another transaction holds locks on rows of the adopted table, or on the table: pg_locks and pg_blocking_pids tell which; it is tried again",
	"42P01": gone, "3F000": gone, "42883": gone,
	"42703": "a column of the adopted table was dropped or renamed: correct the mapping and start again",
}

const gone = "the adopted table was dropped or renamed: correct the configuration and start again"

// explain adds the operator's next step to the message of the server or the network.
func explain(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == fenced:
			return penstock.ErrFenced
		case hints[pg.Code] == gone && strings.Contains(pg.Message, "_adopt_"):
			return penstock.WithHint(penstock.ErrNotMigrated, "run: penstock migrate, or in Go call Migrate")
		}
	}
	return pgerror.Explain(err, hints)
}
