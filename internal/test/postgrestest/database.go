// Package postgrestest gives each test a separate migrated database on a real PostgreSQL, and what
// a test of one keeps asking.
//
// Making the schema takes longer than most tests, so a process runs them once and
// copies the outcome. Tests of other schemas than the usual one, and of migration
// itself, take testserver.Database.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

var migrated = testserver.Template{Fill: migrate}

func migrate(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	store, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close(), publishAll(ctx, url))
}

// publishAll prepares for logical replication of a whole database: a publication of all
// tables, under which PostgreSQL refuses UPDATE and DELETE where rows have no identity. It takes a superuser.
func publishAll(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `do $$ begin
		if (select rolsuper from pg_roles where rolname = current_user) then create publication everything for all tables; end if;
	end $$`)
	return errors.Join(err, conn.Close(ctx))
}

// Database is the URL of a migrated database without outboxes, queues and
// inboxes, on the server that all tests share. It is dropped when the test ends.
func Database(tb testing.TB) string {
	tb.Helper()
	return migrated.Database(tb)
}

// holding are the templates of Holding, by name.
var holding sync.Map

// Holding is Database with what fill has made there, once for all tests of the process that give
// the same name.
func Holding(tb testing.TB, name string, opts postgres.Options, fill func(context.Context, *postgres.Store) error) string {
	tb.Helper()
	template, _ := holding.LoadOrStore(name, &testserver.Template{From: &migrated, Fill: func(url string) error {
		ctx, cancel := context.WithTimeout(context.Background(), Deadline)
		defer cancel()
		store, err := postgres.Open(ctx, url, opts)
		if err != nil {
			return err
		}
		return errors.Join(fill(ctx, store), store.Close())
	}})
	return template.(*testserver.Template).Database(tb)
}

// OnServer is Database on another server, which ends with the test.
func OnServer(url string) func(tb testing.TB) string {
	template := &testserver.Template{Fill: migrate, Server: url}
	return template.Database
}

// Run runs a package's tests and drops the templates of their databases. A
// package that uses Database has
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Run(m)) }
func Run(m *testing.M) int {
	code := m.Run()
	templates := []*testserver.Template{&migrated}
	for _, t := range holding.Range {
		templates = append(templates, t.(*testserver.Template))
	}
	for _, t := range templates {
		if err := t.Drop(); err != nil {
			fmt.Fprintln(os.Stderr, "drop the template of the tests' databases:", err) // a test may have stopped the server permanently
		}
	}
	return code
}
