package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// completed are the words that a shell offers after args.
func completed(t *testing.T, d *desk, args ...string) string {
	t.Helper()
	var lines []string
	for range 60 {
		start := time.Now()
		lines = strings.Split(strings.TrimSpace(d.must(append([]string{"__complete"}, args...)...)), "\n")
		if time.Since(start) < time.Second { // else the shell's patience has ended, on a busy machine
			break
		}
	}
	if last := lines[len(lines)-1]; last != ":4" { // and no names of files
		t.Errorf("%q: the directive is %q", args, last)
	}
	return strings.Join(lines[:len(lines)-1], " ")
}

func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	for store, url := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "test.db"), "postgres": postgrestest.Database(t)} {
		t.Run(store, func(t *testing.T) {
			d := urlDesk(t, url)
			d.outbox("orders", numbered(1)...)
			d.relay("orders", "billing", deliver)
			d.must("queue", "create", "mails")
			d.must("queue", "create", "odd one")
			d.must("inbox", "create", "shipping")
			d.must("enqueue", "mails", "x", "--group", "acme")
			d.must("enqueue", "mails", "x", "--group", "globex", "--delay", "1h")
			d.must("enqueue", "mails", "x")
			adopted := ""
			if store == "postgres" {
				execute(t, url, `create table outbox_messages (id uuid primary key, type text, content jsonb, occurred_on_utc timestamptz, processed_on_utc timestamptz, error text)`)
				settleRows(t, url, "legacy", deliver)
				adopted = "legacy "
			}
			for args, want := range map[string]string{
				"publish ":                         "orders",
				"outbox drop ":                     "orders",
				"outbox set ":                      "orders",
				"outbox create ":                   "",
				"status ":                          adopted + "mails odd one orders",
				"dead list ":                       adopted + "mails odd one orders",
				"parked ":                          adopted + "orders",
				"dead list orders ":                "",
				"dead list orders --subscription ": "billing",
				"work ":                            "mails odd one",
				"queue pause ":                     "mails odd one",
				"queue grant ":                     "mails odd one",
				"schedule drop ":                   "mails odd one",
				"schedule drop mails ":             "",
				"subscription drop ":               adopted + "orders",
				"work mails --group ":              "acme globex",
				"work mails --group acme -g ":      "acme globex",
				"enqueue mails --group ":           "acme globex",
				"dead list mails --group ":         "acme globex",
				"work --group ":                    "",
				"dead list orders --group ":        "",
				"subscription drop orders ":        "billing",
				"inbox held ":                      "shipping",
				"relay --outbox ":                  "orders",
				"relay --outbox orders --sink x --subscription ": "billing",
			} {
				same(t, args, completed(t, d, strings.Split(args, " ")...), want)
			}
		})
	}
}

// Listing names does not wait for transactions that work on the named things, and counts nothing
// in them.
func TestListsReadNamesAlone(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	d := urlDesk(t, url)
	d.outbox("orders", numbered(1)...)
	d.relay("orders", "billing", deliver)
	d.must("queue", "create", "mails")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		"do $$ begin execute format('alter database %I set lock_timeout = 1000', current_database()); end $$", // a call that does wait fails
		"begin", "lock table penstock.orders, penstock.mails",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "outboxes", d.must("outbox", "list"), "orders\n")
	same(t, "queues", d.must("queue", "list", "--json"), `["mails"]`+"\n")
}

// Roles of the server, for each place where something is granted to a role.
func TestRolesAreCompleted(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders")
	d.must("queue", "create", "mails")
	d.must("inbox", "create", "shipping")
	role := fmt.Sprintf("penstock_completed_%d", os.Getpid())
	makeRole(t, database, role)
	for _, args := range [][]string{{"queue", "grant", "mails", ""}, {"inbox", "grant", "shipping", ""}, {"outbox", "grant", "orders", ""}, {"outbox", "grant", "--relay", ""}} {
		offered := strings.Fields(completed(t, d, args...))
		if !slices.Contains(offered, role) || slices.ContainsFunc(offered, func(name string) bool { return strings.HasPrefix(name, "pg_") }) {
			t.Errorf("%q: offered are %q", args, offered)
		}
	}
	same(t, "the outbox first", completed(t, d, "outbox", "grant", ""), "orders")
	same(t, "one role is enough", completed(t, d, "queue", "grant", "mails", role, ""), "")
}

// A completing shell gets no error, and waits for no lock.
func TestCompletionIsSilent(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, flags := range [][]string{nil, {"--database-url", "postgres://postgres@127.0.0.1:1/none"}, {"--database-url", "sqlite:none.db"}, {"--config", "none.yaml"}} {
		o := invoke(t, append([]string{"__complete"}, append(flags, "status", "")...)...)
		same(t, strings.Join(flags, " "), o.stdout, ":4\n")
		if o.code != terminal.ExitOK || strings.Contains(o.stderr, "penstock:") {
			t.Errorf("%q: %+v", flags, o)
		}
	}
}
