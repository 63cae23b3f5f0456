package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/driver"
)

// Driver is this store for config's list.
var Driver = driver.Store{
	Title: "PostgreSQL", Usage: "postgres://USER@HOST/DATABASE", Schemes: []string{"postgres", "postgresql"}, Adopts: true,
	Open: func(ctx context.Context, url, schema string) (penstock.Store, error) {
		store, err := Open(ctx, url, Options{Schema: schema})
		if err != nil {
			return nil, err // not a nil *Store in a non-nil interface
		}
		return store, nil
	},
	Place: place,
}

func place(url string) string {
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		return ""
	}
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks { // one for each host, and each way of using TLS
		hosts = append(hosts, fmt.Sprintf("%s:%d", f.Host, f.Port))
	}
	slices.Sort(hosts)
	return fmt.Sprint(slices.Compact(hosts), c.Database)
}
