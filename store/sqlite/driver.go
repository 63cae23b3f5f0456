package sqlite

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this store for the list in internal/drivers.
var Driver = descriptor.Store{
	Title: "SQLite", Usage: "sqlite:FILE", Schemes: []string{"sqlite"},
	Check: check,
	Open: func(ctx context.Context, url, _ string, log *slog.Logger) (driver.Database, error) {
		return descriptor.Opened(Open(ctx, fileOf(url), Options{Log: log}))
	},
	Place: func(url string) string {
		file, err := filepath.Abs(fileOf(url))
		if err != nil {
			return ""
		}
		return file
	},
}

func check(url, schema string) error {
	switch {
	case fileOf(url) == "":
		return &penstock.FieldError{Field: "database_url", Problem: "names no file", Hint: "write sqlite:FILE"}
	case schema != "":
		return &penstock.FieldError{Field: "schema", Problem: "is set for a SQLite database, which has none", Hint: "remove it"}
	}
	return nil
}

// fileOf takes sqlite:FILE, and sqlite:///FILE as other tools write it.
func fileOf(url string) string { return strings.TrimPrefix(url[len("sqlite:"):], "//") }
