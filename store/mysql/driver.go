package mysql

import (
	"context"
	"log/slog"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this store for the list in internal/drivers.
var Driver = descriptor.Store{
	Title: "MySQL or MariaDB", Usage: "mysql://HOST/", Schemes: []string{"mysql"},
	Check: func(url, _ string) error {
		_, err := connectorOf(url)
		return err
	},
	Open: func(_ context.Context, url, schema string, _ *slog.Logger) (driver.Database, error) {
		return descriptor.Opened(Open(url, Options{Schema: schema}))
	},
	Place: func(url string) string {
		c, err := connectorOf(url)
		if err != nil {
			return ""
		}
		return c.address
	},
	Adopt: func(_ context.Context, url, schema, subscription string, c AdoptConfig, _ *slog.Logger) (descriptor.Adopted, error) {
		return descriptor.Adopting(Adopt(url, Options{Schema: schema}, subscription, c))
	},
}
