package pgerror_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/pgerror"
)

func TestExplain(t *testing.T) {
	of := map[string]string{"42501": "grant it"}
	state := func(code string) error { return fmt.Errorf("reading: %w", &pgconn.PgError{Code: code}) }
	for name, c := range map[string]struct {
		err  error
		hint string
	}{
		"nothing":           {nil, ""},
		"everybody's":       {state("53300"), "max_connections"},
		"of a role":         {&pgconn.PgError{Code: "53300", Message: `too many connections for role "a"b"`}, `this role, or raise its limit: alter role "a""b" connection limit N`},
		"of a database":     {&pgconn.PgError{Code: "53300", Message: `too many connections for database "shop"`}, `alter database "shop" connection limit N`},
		"of a pooler":       {state("42P05"), "default_query_exec_mode=exec"},
		"of two causes":     {state("25006"), "default_transaction_read_only"},
		"the caller's":      {state("42501"), "grant it"},
		"of no known state": {state("XX000"), ""},
		"the network's":     {&net.OpError{Op: "dial", Err: errors.New("refused")}, "is PostgreSQL running"},
		"hinted already":    {penstock.WithHint(state("53300"), "as I said"), "as I said"},
		"another":           {errors.New("odd"), ""},
	} {
		got := pgerror.Explain(c.err, of)
		var hinted *penstock.HintError
		switch {
		case !errors.Is(got, c.err):
			t.Errorf("%s: %v is not %v", name, got, c.err)
		case errors.As(got, &hinted) != (c.hint != "") || c.hint != "" && !strings.Contains(hinted.Hint, c.hint):
			t.Errorf("%s: got %v", name, got)
		}
	}
	if pgerror.State(state("XX000")) != "XX000" || pgerror.State(errors.New("odd")) != "" {
		t.Error("states are wrong")
	}
}

func TestIsDown(t *testing.T) {
	for _, err := range []error{
		&pgconn.PgError{Code: "57P03"}, &net.OpError{Op: "dial", Err: errors.New("refused")},
		mysql.ErrInvalidConn, driver.ErrBadConn, &mysql.MySQLError{Number: 1047}, &mysql.MySQLError{Number: 1053},
	} {
		if !pgerror.IsDown(fmt.Errorf("subscription: %w", err)) {
			t.Errorf("%v (%T) is not waited for", err, err)
		}
	}
	for _, err := range []error{&pgconn.PgError{Code: "42501"}, &mysql.MySQLError{Number: 1045}, errors.New("odd")} {
		if pgerror.IsDown(err) {
			t.Errorf("%v (%T) is waited for", err, err)
		}
	}
}
