package testserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database creates a database with a name of its own on the server at baseURL
// and returns its URL. The database is dropped when the test ends, together
// with the connections that are still open to it.
func Database(tb testing.TB, baseURL string) string {
	tb.Helper()
	return database(tb, baseURL, "template1")
}

// database is Database with what the database named template has in it.
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
			// Not a failure: the test may have stopped the server for good.
			tb.Logf("drop the test's database: %v", err)
		}
	})
	return u
}

// create copies the template. From version 15 on PostgreSQL would copy it block
// by block through its log, unless told to copy the files, as it did before: that
// takes a fifth of the processor's time.
func create(baseURL, name, template string) error {
	return session(baseURL, func(ctx context.Context, conn *pgx.Conn) error {
		var version int
		if err := conn.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&version); err != nil {
			return err
		}
		sql := "create database " + name + " template " + template
		if version >= 150000 {
			sql += " strategy file_copy"
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

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
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(ctx, conn)
}
