package testserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database creates a database with a separate name on the server at baseURL and returns its URL.
// The database is dropped when the test ends, together with the connections that are still open to
// it.
func Database(tb testing.TB, baseURL string) string {
	tb.Helper()
	return database(tb, baseURL, "template1")
}

// database is Database with a copy of the database named template.
func database(tb testing.TB, baseURL, template string) string {
	tb.Helper()
	name := databaseName()
	u, err := on(baseURL, name)
	if err != nil {
		tb.Fatal(err)
	}
	if err := create(baseURL, name, template); err != nil {
		tb.Fatalf("create a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := drop(baseURL, name); err != nil {
			// Not a failure: the test may have stopped the server permanently.
			tb.Logf("drop the test's database: %v", err)
		}
	})
	return u
}

// create copies the template. From version 15 on PostgreSQL would copy it block by block through
// its log. It is set to copy the files, as it did before: that takes a fifth of the processor's
// time.
func create(baseURL, name, template string) error {
	return session(baseURL, func(ctx context.Context, conn *pgx.Conn) error {
		sql := "create database " + name
		if noCopies() {
			_, err := conn.Exec(ctx, sql)
			return err
		}
		sql += " template " + template
		if major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), "."); major > "14" {
			sql += " strategy file_copy"
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// noCopies: the server is an engine that copies no databases.
func noCopies() bool { return os.Getenv("PENSTOCK_TEST_COPIES") == "none" }

func drop(baseURL, name string) error {
	return execute(baseURL, "drop database if exists "+name+" with (force)")
}

func databaseName() string { return fmt.Sprintf("penstock_test_%016x", rand.Uint64()) }

// on is the URL of another database of the server.
func on(baseURL, name string) (string, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func execute(url, sql string) error {
	return session(url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// session is a connection for as long as f takes, a minute at the most.
func session(url string, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if url == os.Getenv(EnvPostgres) {
		pool, err := sessions(url)
		if err != nil {
			return err
		}
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return f(ctx, conn.Conn()) })
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(ctx, conn)
}

var pools sync.Map

// sessions are those on the server that all tests share in which databases are made and
// dropped: to connect takes the server as long as half a database. They end with the process.
func sessions(url string) (*pgxpool.Pool, error) {
	if pool, ok := pools.Load(url); ok {
		return pool.(*pgxpool.Pool), nil
	}
	pool, err := pgxpool.New(context.Background(), url) // connects later
	if err != nil {
		return nil, err
	}
	first, _ := pools.LoadOrStore(url, pool)
	return first.(*pgxpool.Pool), nil
}
