package portable

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/pg"
)

// prefix before the scheme of a PostgreSQL URL says that the database is used by this store.
const prefix = "portable+"

// Driver describes this store for the list in internal/drivers.
var Driver = descriptor.Store{
	Title: "a database in the portable profile", Schemes: []string{prefix + "postgres", prefix + "postgresql"},
	Open: func(ctx context.Context, url, schema string, _ *slog.Logger) (driver.Database, error) {
		return descriptor.Opened(Open(ctx, Plain(url), Options{Schema: schema}))
	},
	Place: func(url string) string { return pg.Place(Plain(url)) },
	Adopt: func(ctx context.Context, url, schema, subscription string, c AdoptConfig, _ *slog.Logger) (descriptor.Adopted, error) {
		return descriptor.Adopting(Adopt(ctx, Plain(url), Options{Schema: schema}, subscription, c))
	},
}

// detectPatience is how long Wanted waits for a server.
const detectPatience = 5 * time.Second

// Wanted asks the server of a PostgreSQL URL whether it is one that only this store can use: YugabyteDB or CockroachDB. It returns false
// if the server does not answer: the caller's next use of it returns the error.
func Wanted(ctx context.Context, url string) bool {
	config, err := pg.PoolConfig(url)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, detectPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	var version string
	err = conn.QueryRow(ctx, "select version()", pgx.QueryExecModeSimpleProtocol).Scan(&version)
	return err == nil && pg.EngineOf(version) != pg.PostgreSQL
}

// Is reports whether a URL, or its scheme, is of this store.
func Is(url string) bool { return strings.HasPrefix(strings.ToLower(url), prefix) }

// URL makes the URL for this store of a PostgreSQL URL. It returns other URLs unchanged.
func URL(url string) string {
	if strings.HasPrefix(strings.ToLower(url), "postgres") {
		return prefix + url
	}
	return url
}

// Plain returns the URL as PostgreSQL's clients take it.
func Plain(url string) string {
	if Is(url) {
		return url[len(prefix):]
	}
	return url
}
