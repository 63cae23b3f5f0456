// Package pgerror gives the next step for a PostgreSQL error, whether a database is down, and whether it refuses
// a role, the last two also for MySQL.
package pgerror

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/shell"
)

// State is the error's five-letter SQLSTATE, or "" if it is not from the server.
func State(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsForbidden reports whether the server says that the role lacks a privilege.
func IsForbidden(err error) bool {
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return slices.Contains(forbiddenMySQL, refused.Number)
	}
	return State(err) == "42501"
}

// forbiddenMySQL are the numbers for a database, a table and a column that the user may not read or write.
var forbiddenMySQL = []uint16{1044, 1142, 1143}

// IsDown reports whether waiting can help: no server answers, or it is starting, stopping or full.
func IsDown(err error) bool {
	if state := State(err); state != "" {
		return slices.Contains([]string{"57P01", "57P02", "57P03", "53300"}, state) || strings.HasPrefix(state, "08")
	}
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return slices.Contains(downMySQL, refused.Number)
	}
	var (
		connect *pgconn.ConnectError
		dial    *net.OpError
	)
	return (errors.As(err, &connect) || errors.As(err, &dial) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn)) && !penstock.IsUnavailable(err)
}

// downMySQL are the corresponding numbers of MySQL and MariaDB. They mean too many connections (1040), not a part of the cluster
// (1047), stopping (1053), and a session or its statement that was ended from outside (1317, 1927).
var downMySQL = []uint16{1040, 1047, 1053, 1317, 1927}

// unprepared is for connections that share the sessions of a pooler, which does not know prepared statements.
const unprepared = "a pooler in transaction mode that does not support prepared statements: add default_query_exec_mode=exec to the URL of the database"

// hints by SQLSTATE, for errors with the same meaning for every caller.
var hints = map[string]string{
	"28000": "check user, password and pg_hba.conf",
	"28P01": "check user, password and pg_hba.conf",
	"3D000": "create the database or correct the URL",
	"26000": unprepared,
	"42P05": unprepared,
	"25006": "on a standby, connect to the primary (target_session_attrs=read-write picks it from several hosts); on a primary, the role or the database has default_transaction_read_only on",
	"53100": "the server's disk is full: free space and it continues; nothing is lost",
	"53300": "raise max_connections or close other connections",
	"57P03": "the server is starting up or shutting down: try again",
}

// RightsOfVerbs is the next step where the server names only the schema, so that the program decides which right is missing.
const RightsOfVerbs = `the page "The command line" of the documentation lists the rights of each verb`

// UnreadQueues is the error for queues of these names, which the role may not read; nil without one.
func UnreadQueues(names []string) error {
	if len(names) == 0 {
		return nil
	}
	more := ""
	if n := len(names) - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return penstock.WithHint(fmt.Errorf("queue %q%s: this role may not read it", names[0], more), "the owner of the schema can grant it: penstock queue grant %s ROLE --operate", shell.Word(names[0]))
}

// ofOneLimit is the next step where the limit of one role or database is reached, and not the server's. The state is the same for all; in
// another language than English the message is not known.
func ofOneLimit(err error) string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != "53300" {
		return ""
	}
	for _, of := range []string{"role", "database"} {
		if name, is := strings.CutPrefix(pg.Message, "too many connections for "+of+` "`); is {
			name = strings.ReplaceAll(strings.TrimSuffix(name, `"`), `"`, `""`)
			return fmt.Sprintf(`close other connections of this %s, or raise its limit: alter %[1]s "%s" connection limit N`, of, name)
		}
	}
	return ""
}

// Explain adds the next step to an error of the server or the network: the caller's hint for its
// SQLSTATE, or else the general one. An error that has a hint keeps it, and an unknown error is
// returned unchanged.
func Explain(err error, of map[string]string) error {
	var (
		connect *pgconn.ConnectError
		dial    *net.OpError
		hinted  *penstock.HintError
	)
	if err == nil || errors.As(err, &hinted) {
		return err
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return penstock.ErrClosed
	}
	if state := State(err); state != "" {
		hint := of[state]
		if hint == "" {
			hint = ofOneLimit(err)
		}
		if hint == "" {
			hint = hints[state]
		}
		if hint != "" {
			return penstock.WithHint(err, "%s", hint)
		}
		return err
	}
	if errors.As(err, &connect) || errors.As(err, &dial) {
		return penstock.WithHint(err, "is PostgreSQL running there and reachable?")
	}
	return err
}
