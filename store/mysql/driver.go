package mysql

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/driver"
)

// Driver is this store for config's list.
var Driver = driver.Store{
	Title: "MySQL or MariaDB", Usage: "mysql://HOST/", Schemes: []string{"mysql"},
	Check: func(url, _ string) error {
		_, err := connectorOf(url)
		return err
	},
	Open: func(_ context.Context, url, schema string, _ *slog.Logger) (penstock.Store, error) {
		store, err := Open(url, Options{Schema: schema})
		if err != nil {
			return nil, err // not a nil *Store in a non-nil interface
		}
		return store, nil
	},
	Place: func(url string) string {
		c, err := connectorOf(url)
		if err != nil {
			return ""
		}
		return c.address
	},
}
