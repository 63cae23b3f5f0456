package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/docblock"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestQueueGrant(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.must("queue", "create", "mails")
	d.must("queue", "create", "others")
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	as := func(part string) func(args ...string) outcome {
		role := fmt.Sprintf("penstock_%s_%d", part, os.Getpid())
		makeRole(t, database, role)
		out := d.must("queue", "grant", "mails", role, "--"+part)
		same(t, "told", out, fmt.Sprintf("Role %s may %s on queue mails.\n", role, part))
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		return func(args ...string) outcome { return invoke(t, append(args, "--database-url", u.String())...) }
	}
	enqueuer, worker := as("enqueue"), as("work")

	enqueuer("enqueue", "mails", "hello").wants(t, terminal.ExitOK, "")
	enqueuer("enqueue", "others", "hello").wants(t, terminal.ExitDatabase, "permission denied")
	enqueuer("dead", "list", "mails").wants(t, terminal.ExitDatabase, fmt.Sprintf("penstock queue grant mails penstock_enqueue_%d --operate", os.Getpid()))
	worker("enqueue", "mails", "hello").wants(t, terminal.ExitDatabase, "permission denied")

	same(t, "json", d.must("queue", "grant", "mails", roleOf(t, conn), "--work", "--enqueue", "--json"),
		fmt.Sprintf(`{"granted":["enqueue","work"],"queue":"mails","role":%q}`+"\n", roleOf(t, conn)))
	d.cli("queue", "grant", "mails", "nobody_at_all", "--work").wants(t, terminal.ExitUsage, `role "nobody_at_all" does not exist: make it first`)
	d.cli("queue", "grant", "nothing", "postgres", "--work").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
	d.cli("queue", "grant", "mails", "postgres").wants(t, terminal.ExitUsage, "nothing to grant: give --enqueue, --work or --operate")
}

// The statements of the page end every right that the program grants: the role can be dropped.
func TestRevokeDocs(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders")
	d.must("queue", "create", "mails")
	d.must("inbox", "create", "billing")
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	role := fmt.Sprintf("penstock_revoked_%d", os.Getpid())
	if _, err := conn.Exec(t.Context(), "create role "+role); err != nil {
		t.Fatal(err)
	}
	d.must("outbox", "grant", "orders", role, "--publish")
	d.must("outbox", "grant", role, "--relay")
	d.must("queue", "grant", "mails", role, "--enqueue", "--work", "--operate")
	d.must("inbox", "grant", "billing", role, "--consume", "--operate")
	statements := strings.ReplaceAll(docblock.Of(t, "docs/operations/security.md", "sql")[0], "shop_app", role)
	if _, err := conn.Exec(t.Context(), statements+"drop role "+role); err != nil {
		t.Error(err)
		if _, err := conn.Exec(t.Context(), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	}
}

// makeRole creates a role and drops it after the test.
func makeRole(t *testing.T, database, role string) {
	t.Helper()
	exec := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, database)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if err := exec(t.Context(), "create role "+role+" login"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the test's context has ended
		if err := exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
}

// roleOf is the existing role of a connection.
func roleOf(t *testing.T, conn *pgx.Conn) (role string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "select current_user").Scan(&role); err != nil {
		t.Fatal(err)
	}
	return role
}

func TestOutboxGrant(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders")
	role := fmt.Sprintf("penstock_outbox_%d", os.Getpid())
	makeRole(t, database, role)
	same(t, "told", d.must("outbox", "grant", "orders", role, "--publish"), "Role "+role+" may publish on outbox orders.\n")
	same(t, "json", d.must("outbox", "grant", "orders", role, "--publish", "--json"), fmt.Sprintf(`{"granted":["publish"],"outbox":"orders","role":%q}`+"\n", role))
	same(t, "told", d.must("outbox", "grant", role, "--relay"), "Role "+role+" may relay every outbox.\n")
	same(t, "json", d.must("outbox", "grant", role, "--relay", "--json"), fmt.Sprintf(`{"granted":["relay"],"role":%q}`+"\n", role))
	for args, want := range map[string]string{
		"orders nobody_at_all --publish": `role "nobody_at_all" does not exist: make it first`,
		"nobody_at_all --relay":          `role "nobody_at_all" does not exist: make it first`,
		"orders postgres":                "give --publish or --relay",
		"orders postgres --relay":        "--relay is for every outbox: give ROLE alone",
		"postgres --publish":             "--publish is for one outbox: give OUTBOX and ROLE",
	} {
		d.cli(append([]string{"outbox", "grant"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
	}
	d.cli("outbox", "grant", "nothing", "postgres", "--publish").wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox`)
}

func TestOnlyPostgreSQLGrants(t *testing.T) {
	t.Parallel()
	d := urlDesk(t, sqliteFile(t))
	d.cli("queue", "grant", "mails", "somebody", "--work").wants(t, terminal.ExitUsage, "this database has no roles")
	d.cli("outbox", "grant", "orders", "somebody", "--publish").wants(t, terminal.ExitUsage, "this database has no roles")
}
