package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock/store/postgres"
)

// A client that fits is told the schema's version, whatever its role; another what to do.
func TestCheckClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgres.Options{Schema: `100% "odd" 'names'`})
	version, err := f.store.SchemaVersion(f.Ctx)
	f.Must(err)
	name, asRole := f.role()
	const in = `"100% ""odd"" 'names'"`
	f.Exec("grant usage on schema " + in + " to " + pgx.Identifier{name}.Sanitize())
	conn := f.connectAs(asRole)
	ask := func(writtenFor any) (got int64, err error) {
		err = conn.QueryRow(f.Ctx, "select "+in+".check_client($1)", writtenFor).Scan(&got)
		return got, err
	}
	for _, fits := range []int64{220, version} {
		if got, err := ask(fits); err != nil || got != version {
			t.Errorf("a client for version %d: got %d, %v, want %d", fits, got, err, version)
		}
	}
	for _, c := range []struct {
		writtenFor any
		says, hint string
	}{
		{version + 1, fmt.Sprintf("the schema is version %d, this client needs %d", version, version+1), "run: penstock migrate"},
		{219, fmt.Sprintf("this client was written for version 219 of the schema, which is version %d and takes clients for 220 on", version), "use a newer client"},
		{nil, fmt.Sprintf("this client was written for version null of the schema, which is version %d and takes clients for 220 on", version), "use a newer client"},
	} {
		_, err := ask(c.writtenFor)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "PS002" || refused.Message != c.says || refused.Hint != c.hint {
			t.Errorf("a client for version %v: got %v, want PS002, %q, and the hint %q", c.writtenFor, err, c.says, c.hint)
		}
	}
}
