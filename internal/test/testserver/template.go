package testserver

import (
	"sync"
	"testing"
)

// Template makes databases that are alike from the start. The first is filled;
// each test gets a copy of it, which costs little more than an empty database
// however long the filling took.
//
// The first is the process's own and shared by its tests. A package that declares a Template calls
// Drop when its tests have run, in TestMain.
type Template struct {
	// Fill gets the URL of an empty database. It leaves no session open there,
	// because PostgreSQL does not copy a database that is in use.
	Fill func(url string) error
	// From is the base that it is filled on, on the same server; nil: an empty database.
	From *Template
	// Server is the URL of the server; empty: the one that all tests share.
	Server string

	once         sync.Once
	server, name string
	err          error
}

// Database is the package's Database with the contents that Fill made.
func (t *Template) Database(tb testing.TB) string {
	tb.Helper()
	server := t.Server
	if server == "" {
		server = PostgresURL(tb)
	}
	if noCopies() {
		url := Database(tb, server)
		if err := t.Fill(url); err != nil {
			tb.Fatalf("fill the test's database: %v", err)
		}
		return url
	}
	if err := t.ready(server); err != nil {
		tb.Fatalf("make the template of the tests' databases: %v", err)
	}
	return database(tb, server, t.name)
}

// ready makes the template unless that was tried before.
func (t *Template) ready(server string) error {
	t.once.Do(func() { t.err = t.make(server) })
	return t.err
}

func (t *Template) make(server string) error {
	name, from := databaseName(), "template1"
	if t.From != nil {
		if err := t.From.ready(server); err != nil {
			return err
		}
		from = t.From.name
	}
	if err := create(server, name, from); err != nil {
		return err
	}
	t.server, t.name = server, name // from here on there is something to drop
	url, err := on(server, name)
	if err != nil {
		return err
	}
	if err := t.Fill(url); err != nil {
		return err
	}
	// Tests that look around on a server that others also use would be in the way.
	return execute(server, "alter database "+name+" allow_connections false")
}

// Drop drops the originals of the copies, if any was made.
func (t *Template) Drop() error {
	if t.name == "" {
		return nil
	}
	return drop(t.server, t.name)
}
