package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/store/postgres/postgrestest"
)

// TestRelayRoleNeedsNothingOfQueues has a role that existed before there were
// queues do what docs/cli.md says it can.
func TestRelayRoleNeedsNothingOfQueues(t *testing.T) {
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders", numbered(1)...)
	d.must("queue", "create", "mails")
	d.relay("orders", "billing", bury)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	role := fmt.Sprintf("penstock_cli_%d", os.Getpid())
	for _, sql := range []string{"create role " + role + " login", "select penstock.grant_relay('" + role + "')"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if _, err := conn.Exec(t.Context(), "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	}()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	as := func(args ...string) outcome { return cli(t, append(args, "--database-url", u.String())...) }

	o := as("status")
	if o.code != exitOK || !strings.Contains(o.stdout, "orders") || o.stderr != "penstock: queues are not shown: this role may not read them\n" {
		t.Errorf("%+v", o)
	}
	var status map[string]any
	if err := json.Unmarshal([]byte(as("status", "--json").stdout), &status); err != nil || status["outboxes"] == nil || status["queues"] != nil {
		t.Errorf("got %v, %v", status, err)
	}
	contains(t, as("dead", "list", "orders").stdout, "refused")
	as("queue", "list").wants(t, exitDatabase, "permission denied")
}
