package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/pg"
)

// prove makes the server check every statement of the mapping, before a subscription is made for
// it. A subscription whose mapping does not work would block the table for a corrected one.
func (t *Table) prove(ctx context.Context, st *statements) error {
	return t.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		for _, sql := range slices.Concat(st.read[:], st.list[:], st.claim[:], st.narrow[:],
			[]string{st.find, st.findLocked, st.unplaced, st.scan, st.load, st.loadLocked, st.settle, st.discard, st.failed, st.backlog}) {
			if sql == "" {
				continue
			}
			if _, err := conn.Conn().PgConn().Prepare(ctx, "", sql, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkStatus makes sure that the values are of the status column's type, and that a
// delivered row is not a pending one.
func (m *mapping) checkStatus(ctx context.Context, q querier, c *Config) error {
	if c.Delivered != SetStatus {
		return nil
	}
	status := m.Find(c.Columns.Status)
	typed := func(v Value) string { return pg.Literal(string(v)) + "::" + status.Type }
	for i, v := range append([]Value{c.Status.Delivered}, c.Status.Pending...) {
		of := "status.delivered"
		if i > 0 {
			of = fmt.Sprintf("status.pending[%d]", i-1)
		}
		// Texts may differ where values do not: 0 and 00, f and false.
		var same bool
		err := q.QueryRow(ctx, "select "+typed(v)+" = "+typed(c.Status.Delivered)).Scan(&same)
		var wrong *pgconn.PgError
		switch {
		case errors.As(err, &wrong) && strings.HasPrefix(wrong.Code, "22"):
			return m.wrongStatus(ctx, q, of, v, status)
		case err != nil:
			return explain(err)
		case status.Limit > 0 && utf8.RuneCountInString(string(v)) > status.Limit:
			return adopted.Field(of, fmt.Sprintf("is %q, and the column %q takes %d characters", v, status.Name, status.Limit), "use a shorter value")
		case same && i > 0:
			return adopted.Field("status.delivered", fmt.Sprintf("is %q, as pending rows have it", c.Status.Delivered), "choose a value that is not in status.pending")
		}
	}
	return nil
}

// wrongStatus says which values there are.
func (m *mapping) wrongStatus(ctx context.Context, q querier, of string, v Value, status *column) error {
	hint := "write a whole number"
	switch status.Kind {
	case adopted.Bool:
		hint = "write true or false: status.pending has what rows are before they are delivered, status.delivered what they are then"
	case adopted.Enum:
		var labels []string
		if err := q.QueryRow(ctx, "select enum_range(null::"+status.Type+")::text[]").Scan(&labels); err != nil {
			return explain(err)
		}
		hint = "write one of " + strings.Join(labels, ", ")
	}
	return adopted.Field(of, fmt.Sprintf("is %q, which the column %q of type %s cannot be", v, status.Name, status.Type), "%s", hint)
}
