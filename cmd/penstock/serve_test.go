package main

import (
	"testing"

	"github.com/penstock/penstock/internal/terminal"
)

// An invalid configuration is reported before anything is opened.
func TestServeUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	const database = "--database-url=sqlite:x.db"
	invoke(t, "serve", database).wants(t, terminal.ExitUsage, "--listen is missing")
	invoke(t, "serve", database, "--listen", ":8080").wants(t, terminal.ExitUsage, "which other machines reach, and no token is set")
	invoke(t, "serve", database, "--listen", "127.0.0.1:0", "--inbox", "i").wants(t, terminal.ExitUsage, "are for an --outbox")
	t.Setenv("PENSTOCK_SERVE_TOKEN", "hunter2")
	invoke(t, "serve", database, "--listen", ":8080", "--outbox", "orders").wants(t, terminal.ExitUsage, "is shorter than 32 characters")
}
