package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

// queueError translates the server's refusal for a queue's caller. Hints that
// the SQL functions give are kept.
func queueError(err error, queue string) error {
	var (
		pg     *pgconn.PgError
		hinted *penstock.HintError
	)
	if errors.As(err, &hinted) || !errors.As(err, &pg) {
		return explain(err)
	}
	switch pg.Code {
	case "42P01", "42883", "3F000": // no such table, function of the queue, or schema
		return noQueue(queue)
	case "XX000": // the server has lost a table or a function while the statement ran
		if strings.HasPrefix(pg.Message, "could not open relation with OID") || strings.HasPrefix(pg.Message, "cache lookup failed for function") {
			return fmt.Errorf("%w (it was dropped meanwhile: %w)", noQueue(queue), err)
		}
	case "PS001":
		return penstock.WithHint(fmt.Errorf("%w: queue %q", penstock.ErrLeaseLost, queue),
			"the job may be running elsewhere; extend leases in time, or claim with longer ones")
	case "22021", pgerror.NoSuchCharacter:
		return fmt.Errorf("queue %q: text the database cannot hold: %w", queue, err)
	}
	if pg.Hint != "" {
		return penstock.WithHint(err, "%s", pg.Hint)
	}
	return explain(err)
}
