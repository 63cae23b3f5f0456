package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres/postgrestest"
)

func TestQueueGrant(t *testing.T) {
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
		return func(args ...string) outcome { return cli(t, append(args, "--database-url", u.String())...) }
	}
	enqueuer, worker := as("enqueue"), as("work")

	enqueuer("enqueue", "mails", "hello").wants(t, exitOK, "")
	enqueuer("enqueue", "others", "hello").wants(t, exitDatabase, "permission denied")
	enqueuer("dead", "list", "mails").wants(t, exitDatabase, "permission denied")
	worker("enqueue", "mails", "hello").wants(t, exitDatabase, "permission denied")

	same(t, "json", d.must("queue", "grant", "mails", roleOf(t, conn), "--work", "--enqueue", "--json"),
		fmt.Sprintf(`{"granted":["enqueue","work"],"queue":"mails","role":%q}`+"\n", roleOf(t, conn)))
	d.cli("queue", "grant", "mails", "nobody_at_all", "--work").wants(t, exitUsage, `role "nobody_at_all" does not exist: make it first`)
	d.cli("queue", "grant", "nothing", "postgres", "--work").wants(t, exitFailure, `queue "nothing": no such queue`)
	d.cli("queue", "grant", "mails", "postgres").wants(t, exitUsage, "nothing to grant: give --enqueue, --work or --operate")
}

// makeRole makes a role that goes with the test.
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

// roleOf is the role of a connection: one that there is.
func roleOf(t *testing.T, conn *pgx.Conn) (role string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "select current_user").Scan(&role); err != nil {
		t.Fatal(err)
	}
	return role
}

func TestOnlyPostgreSQLGrants(t *testing.T) {
	d := memoryDesk(t)
	d.cli("queue", "grant", "mails", "somebody", "--work").wants(t, exitUsage, "this database has no roles")
}
