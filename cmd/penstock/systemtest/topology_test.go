package systemtest

import (
	"context"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testseed"
)

// Tests whose names begin with TestTopology run Penstock in typical environments: behind poolers,
// in clusters, with a standby, on a full disk. Each counts lost, duplicated and out-of-order
// messages. make soak runs a quick form of those whose servers are installed.

// topology marks such a test.
func topology(t *testing.T) {
	t.Helper()
	if !longForm() {
		testseed.Soak(t)
	}
	t.Parallel()
}

// envTopologies asks for the long form.
const envTopologies = "PENSTOCK_TOPOLOGIES"

func longForm() bool { return os.Getenv(envTopologies) != "" }

// times is how often a test repeats something: few times, or many in the long form.
func times(quick, long int) int {
	if longForm() {
		return long
	}
	return quick
}

// onHost is a URL with another URL's host.
func onHost(t testing.TB, rawURL, other string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	o, err := url.Parse(other)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = o.Host
	return u.String()
}

// texts are the rows of a query with one text column.
func texts(t testing.TB, database, sql string, args ...any) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// entriesOf are the entries in a ledger's table.
func entriesOf(t testing.TB, database string) map[string]bool {
	t.Helper()
	entries := map[string]bool{}
	for _, entry := range texts(t, database, "select entry from ledger") {
		entries[entry] = true
	}
	return entries
}
