package terminal

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/store/sqlite"
)

// isDatabaseError reports whether the database is the problem, rather than the request.
func isDatabaseError(err error) bool {
	for _, its := range []error{penstock.ErrNotMigrated, penstock.ErrNewerSchema, penstock.ErrBrokenSchema, sqlite.ErrBusy, sqlite.ErrFull, sqlite.ErrUnusable} {
		if errors.Is(err, its) {
			return true
		}
	}
	return DatabaseHint(err) != ""
}

// DatabaseHint is the next step for a database error, or "" for any other.
func DatabaseHint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "28P01", "28000":
			return "check user and password in --database-url and the server's pg_hba.conf"
		case "3D000":
			return "create the database first, or correct its name in --database-url"
		case "53100":
			return "free space on the database's disk; nothing was written"
		case "25006":
			return "connect to the primary: of several hosts in --database-url, target_session_attrs=read-write finds it"
		case "55P03", "57014":
			return "try again: another session holds a lock that this one waited for, and lock_timeout or statement_timeout ended it"
		}
	}
	if pgerror.IsForbidden(err) {
		return "use a role that may do this, or have its owner grant it; the page \"The command line\" of the documentation lists the rights of each verb"
	}
	if pgerror.IsDown(err) {
		return "check that the server is up and that --database-url names its host and port"
	}
	return ""
}
