package portable_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock/internal/pgerror"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/internal/test/wire"
	"github.com/penstock/penstock/store/portable"
)

// without takes from a database what only PostgreSQL has, so that the suites pass without it. Other engines are as they are.
func without(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var version string
	if err := conn.QueryRow(ctx, "select version()").Scan(&version); err != nil || !strings.HasPrefix(version, "PostgreSQL") || strings.Contains(version, "-YB-") {
		return err
	}
	_, err = conn.Exec(ctx, wire.Shim)
	return err
}

// database is a separate one for a test, with the tables, where only features can be used that other
// engines also have.
func database(t testing.TB) string { return shimmed(t, created.Database(t)) }

// shimmed has the sessions of a database find the shim before pg_catalog. Not by the URL: a pooler takes no such parameter of a session,
// and keeps sessions that were begun before.
func shimmed(t testing.TB, direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	server := testserver.PostgresURL(t)
	s, err := sessions(server)
	if err != nil {
		t.Fatal(err)
	}
	if s.engine != "PostgreSQL" {
		return direct
	}
	name := strings.TrimPrefix(u.Path, "/")
	if _, err := s.pool.Exec(t.Context(), "alter database "+pgx.Identifier{name}.Sanitize()+` set search_path = shim, pg_catalog, "$user", public`); err != nil {
		t.Fatal(err)
	}
	if !isPooled(server) {
		return direct
	}
	exec(t, server, "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
	for end := time.Now().Add(time.Minute); ; { // a pooler hands out a session that has ended, until it has noticed
		path, err := searchPath(direct)
		if strings.HasPrefix(path, "shim") {
			return direct
		}
		if time.Now().After(end) {
			t.Fatalf("the search path is %q, %v", path, err)
		}
	}
}

// serverSessions are those on the server in which its databases are altered. They end with the process.
type serverSessions struct {
	pool   *pgxpool.Pool
	engine string
}

var sessionsOf sync.Map // by the server's URL: a func as sessions is

func sessions(server string) (*serverSessions, error) {
	open, _ := sessionsOf.LoadOrStore(server, sync.OnceValues(func() (*serverSessions, error) {
		ctx := context.Background()
		store, err := portable.Open(ctx, server, portable.Options{})
		if err != nil {
			return nil, err
		}
		defer func() { _ = store.Close() }()
		s := &serverSessions{}
		if s.engine, err = store.Engine(ctx); err == nil {
			s.pool, err = pgxpool.New(ctx, server)
		}
		return s, err
	}))
	return open.(func() (*serverSessions, error))()
}

func searchPath(url string) (path string, err error) {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	err = conn.QueryRow(context.Background(), "select current_setting('search_path')").Scan(&path)
	return path, err
}

// engine is the kind of a URL's server.
func engine(t testing.TB, url string) string {
	name, err := openStore(t, url, portable.Options{}).Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// needsShim skips a test of the shim where databases have none.
func needsShim(t *testing.T) {
	t.Helper()
	if is := engine(t, testserver.PostgresURL(t)); is != "PostgreSQL" {
		t.Skip("the shim is PostgreSQL's, this is ", is)
	}
}

// The databases of the suites have none of these.
func TestWithout(t *testing.T) {
	t.Parallel()
	needsShim(t)
	conn, err := pgx.Connect(t.Context(), database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range []string{"select txid_current()", "select pg_current_xact_id()", "select pg_current_snapshot()", "select pg_advisory_xact_lock(1)",
		"select pg_try_advisory_lock(1, 2)"} {
		if _, err := conn.Exec(t.Context(), sql); pgerror.State(err) != "0A000" {
			t.Errorf("%s: %v, want that it is not supported", sql, err)
		}
	}
}
