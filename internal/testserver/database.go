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
	u, err := url.Parse(baseURL)
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("penstock_test_%016x", rand.Uint64())
	if err := execute(baseURL, "create database "+name); err != nil {
		tb.Fatalf("create a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := execute(baseURL, "drop database if exists "+name+" with (force)"); err != nil {
			// Not a failure: the test may have stopped the server for good.
			tb.Logf("drop the test's database: %v", err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

func execute(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
