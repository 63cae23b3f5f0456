package pgerror_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

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
