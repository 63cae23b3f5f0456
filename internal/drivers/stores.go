package drivers

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/portable"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/adopt"
	"github.com/penstock/penstock/store/sqlite"
)

// stores is the same list as sinks for databases.
var stores = []descriptor.Store{adopt.Driver(postgres.Driver), sqlite.Driver, portable.Driver, mysql.Driver}

// OpenStore opens the database that url names: postgres://… or sqlite:FILE. The schema is for
// PostgreSQL; empty means penstock. The store's warnings go to the log, or to slog.Default() if
// that is nil. Errors do not show the password.
func OpenStore(ctx context.Context, url, schema string, log *slog.Logger) (driver.Database, error) {
	if err := CheckStore(url, schema); err != nil {
		return nil, err
	}
	store, err := storeOf(url).Open(ctx, url, schema, log)
	if err != nil {
		return nil, &redactedError{err}
	}
	return store, nil
}

// storeOf returns the driver for the URL's scheme, or nil.
func storeOf(url string) *descriptor.Store {
	for i := range stores {
		if slices.Contains(stores[i].Schemes, Scheme(url)) {
			return &stores[i]
		}
	}
	return nil
}

// NoTables names the database of a url whose tables cannot be adopted, or returns "" if they can.
func NoTables(url string) (database string) {
	if d := storeOf(url); d != nil && d.Adopt == nil {
		return d.Title
	}
	return ""
}

// NotPostgres names the database of a url that is used without PostgreSQL's own features, or returns "" if it has
// them.
func NotPostgres(url string) (database string) {
	if d := storeOf(url); d != nil && !d.Postgres {
		return d.Title
	}
	return ""
}

// OpenTable prepares a subscription over a table that Penstock did not create. It does not connect.
func OpenTable(ctx context.Context, url, schema, subscription string, c adopted.Config, log *slog.Logger) (descriptor.Adopted, error) {
	d, err := adopts(url)
	if err != nil {
		return nil, err
	}
	table, err := d.Adopt(ctx, url, schema, subscription, c, log)
	if err != nil {
		return nil, &redactedError{err}
	}
	return table, nil
}

// Remembers opens what the database remembers of subscriptions over such tables.
func Remembers(ctx context.Context, url, schema string) (descriptor.Remembers, error) {
	d, err := adopts(url)
	if err != nil {
		return nil, err
	}
	if d.Remembers != nil {
		return d.Remembers(url, schema), nil
	}
	store, err := d.Open(ctx, url, schema, nil)
	if err != nil {
		return nil, err
	}
	return store.(descriptor.Remembers), nil
}

func adopts(url string) (*descriptor.Store, error) {
	if err := CheckStore(url, ""); err != nil {
		return nil, err
	}
	if database := NoTables(url); database != "" {
		return nil, errors.New("tables are adopted in PostgreSQL and MariaDB, and this database is " + database)
	}
	return storeOf(url), nil
}

// CheckStore reports an invalid database URL without opening it.
func CheckStore(url, schema string) error {
	d := storeOf(url)
	if d == nil {
		var usages []string
		for _, d := range stores {
			if d.Usage != "" {
				usages = append(usages, d.Usage)
			}
		}
		return &penstock.FieldError{Field: "database_url", Problem: unknownScheme(url), Hint: "write " + OneOf(usages)}
	}
	if d.Check == nil {
		return nil
	}
	return d.Check(url, schema)
}

// SameDatabase reports whether two URLs lead to the same database, whatever the login.
func SameDatabase(a, b string) bool {
	return a == b || Place(a) != "" && Place(a) == Place(b)
}

// Place shows where the database of a URL is, without the login, or "" if it is unknown.
func Place(url string) string {
	if d := storeOf(url); d != nil {
		return d.Place(url)
	}
	return ""
}
