package adopt

import (
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
)

// fenced is the SQLSTATE of _adopt_fence.
const fenced = "PS001"

// sqlState is the error's five-letter SQLSTATE, "" if it is not the server's.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// explain adds the operator's next step to what the server or the network says.
func explain(err error) error {
	var (
		pg      *pgconn.PgError
		connect *pgconn.ConnectError
		dial    *net.OpError
		hinted  *penstock.HintError
	)
	switch {
	case err == nil, errors.As(err, &hinted):
		return err
	case errors.As(err, &pg):
		switch pg.Code {
		case fenced:
			return penstock.ErrFenced
		case "28P01", "28000":
			return penstock.WithHint(err, "check user, password and pg_hba.conf")
		case "3D000":
			return penstock.WithHint(err, "create the database or correct the URL")
		case "42501":
			return penstock.WithHint(err, "grant the role what it lacks on the adopted table; on Penstock's own tables its owner can: select penstock.grant_adopt('role')")
		case "25006":
			return penstock.WithHint(err, "the server is read-only: connect to the primary (target_session_attrs=read-write picks it from several hosts)")
		case "53100":
			return penstock.WithHint(err, "the server's disk is full: free space and go on; nothing is lost")
		case "53300":
			return penstock.WithHint(err, "raise max_connections or close other connections")
		case "55P03":
			return penstock.WithHint(err, "another transaction holds locks on rows of the adopted table, or on the table: pg_locks and pg_blocking_pids tell which; it is tried again")
		case "57P03":
			return penstock.WithHint(err, "the server is starting up or shutting down: try again")
		case "42P01", "3F000", "42883":
			if strings.Contains(pg.Message, "_adopt_") {
				return penstock.WithHint(penstock.ErrNotMigrated, "run: penstock migrate")
			}
			return penstock.WithHint(err, "the adopted table was dropped or renamed: correct the configuration and start again")
		case "42703":
			return penstock.WithHint(err, "a column of the adopted table was dropped or renamed: correct the mapping and start again")
		}
	case errors.As(err, &connect), errors.As(err, &dial):
		return penstock.WithHint(err, "is PostgreSQL running there and reachable?")
	}
	return err
}
