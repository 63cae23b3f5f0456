package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/metrics"
	"github.com/penstock/penstock/store/mysql"
	"github.com/penstock/penstock/store/postgres"
)

// TestRelayRoleNeedsNothingOfQueues lets a role that existed before queues did do everything that
// docs/reference/cli.md says it can.
func TestRelayRoleNeedsNothingOfQueues(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders", numbered(1)...)
	d.must("queue", "create", "mails")
	d.relay("orders", "billing", dies)
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
	own := u.String()
	as := func(args ...string) outcome { return invoke(t, append(args, "--database-url", own)...) }

	o := as("status")
	if o.code != terminal.ExitOK || !strings.Contains(o.stdout, "orders") || o.stderr != "penstock: queues are not shown: this role may not read them\n" {
		t.Errorf("%+v", o)
	}
	var status map[string]any
	if err := json.Unmarshal([]byte(as("status", "--json").stdout), &status); err != nil || status["outboxes"] == nil || status["queues"] != nil {
		t.Errorf("got %v, %v", status, err)
	}
	contains(t, as("dead", "list", "orders").stdout, "refused")
	as("queue", "list").wants(t, terminal.ExitDatabase, "penstock queue grant QUEUE "+role+" --operate")
	as("status", "mails").wants(t, terminal.ExitDatabase, // there is a queue of that name
		`nothing that this role may see is called "mails", and queues it may not read: the owner of the schema can grant it: penstock queue grant mails `+role+` --operate`)
	as("dead", "list", "mails").wants(t, terminal.ExitDatabase, "permission denied for function _mails.count (SQLSTATE 42501): the owner of the schema can grant it: penstock queue grant mails "+role+" --operate")
	as("relay", "--outbox", "orders", "--sink", "queue:missing", "--log-level", "error").wants(t, terminal.ExitFailure, `queue "missing": no such queue: penstock queue list`)
	o = as("status", "orders")
	same(t, "of what it asked for all is shown", o.stderr, "")

	d.must("publish", "orders", "--payload", "x") // no relay takes it
	owner := roleOf(t, conn)
	u.User = url.User(owner)
	contains(t, terminal.OneLine(as("doctor", "--measure", "1ms").stdout), "penstock subscription drop --database-url '"+u.String()+"' orders billing")
	var report struct{ Findings []doctor.Finding }
	if err := json.Unmarshal([]byte(as("doctor", "--measure", "1ms", "--json").stdout), &report); err != nil {
		t.Fatal(err)
	}
	drops := func(f doctor.Finding) bool { return strings.Contains(f.Next, "penstock subscription drop") }
	if i := slices.IndexFunc(report.Findings, drops); i < 0 || !strings.Contains(report.Findings[i].Next, "as the owner of the tables, "+owner+", if it is not needed: penstock subscription drop ") {
		t.Errorf("no drop as %s: %+v", owner, report.Findings)
	}
}

// TestEachRoleSeesItsPart lets roles with one part each look at everything, and try the operations
// of other parts.
func TestEachRoleSeesItsPart(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders", numbered(1)...)
	for _, verb := range []string{"queue create mails", "queue create others", "inbox create billing", "inbox create shipping"} {
		d.must(strings.Fields(verb)...)
	}
	as := func(part string, grant ...string) func(code int, want string, args ...string) outcome {
		role := fmt.Sprintf("penstock_sees_%s_%d", part, os.Getpid())
		makeRole(t, database, role)
		d.must(strings.Split(strings.ReplaceAll(strings.Join(grant, " "), "ROLE", role), " ")...)
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		return func(code int, want string, args ...string) outcome {
			t.Helper()
			o := invoke(t, append(args, "--database-url", u.String())...)
			o.wants(t, code, strings.ReplaceAll(want, "ROLE", role))
			return o
		}
	}
	operator := as("operate", "queue grant mails ROLE --operate")
	enqueuer := as("enqueue", "queue grant mails ROLE --enqueue")
	watcher := as("watch", "inbox grant billing ROLE --operate")
	producer := as("produce", "outbox grant orders ROLE --publish")
	relay := as("relay", "outbox grant ROLE --relay")
	none := as("nothing", "outbox grant orders ROLE --publish")
	execute(t, database, fmt.Sprintf("revoke all on schema penstock from penstock_sees_nothing_%d", os.Getpid()))

	contains(t, operator(terminal.ExitOK, "penstock: outboxes and inboxes are not shown: this role may not read them\n", "status").stdout, "mails")
	operator(terminal.ExitOK, `penstock: queue "others": this role may not read it (the owner of the schema can grant it: penstock queue grant others ROLE --operate)`, "status")
	contains(t, operator(terminal.ExitCheck, "", "doctor", "--measure", "1ms").stdout, `queue "others": this role may not read it`)
	o := operator(terminal.ExitOK, "", "status", "mails")
	if contains(t, o.stdout, "mails"); o.stderr != "" || strings.Contains(o.stdout, "others") {
		t.Errorf("%+v", o)
	}
	var seen map[string]json.RawMessage
	if err := json.Unmarshal([]byte(operator(terminal.ExitOK, "", "status", "--json").stdout), &seen); err != nil || seen["outboxes"] != nil || !strings.Contains(string(seen["queues"]), `"mails"`) {
		t.Errorf("got %s, %v", seen, err)
	}
	operator(terminal.ExitDatabase, `queue "others": this role may not see it: the owner of the schema can grant it: penstock queue grant others ROLE --operate`, "status", "others")
	operator(terminal.ExitDatabase, `nothing that this role may see is called "orders", and outboxes it may not read: the owner of the schema can grant it: penstock outbox grant ROLE --relay`, "status", "orders")
	contains(t, watcher(terminal.ExitOK, "penstock: outboxes and queues are not shown", "status").stdout, "billing")
	if o := relay(terminal.ExitOK, "penstock: queues and inboxes are not shown", "status"); !strings.Contains(o.stdout, "orders") {
		t.Errorf("%+v", o)
	}
	enqueuer(terminal.ExitDatabase, "permission denied for table _outbox (SQLSTATE 42501): the owner of the schema can grant it: to see outboxes, penstock outbox grant ROLE --relay; to see a queue, penstock queue grant QUEUE ROLE --operate", "status") // it sees nothing
	enqueuer(terminal.ExitDatabase, "penstock queue grant mails ROLE --operate, or if it is an outbox penstock outbox grant ROLE --relay", "status", "mails")
	producer(terminal.ExitOK, "", "publish", "orders", "--payload", "x")

	for _, refused := range []struct {
		as   func(code int, want string, args ...string) outcome
		verb string
		hint string
	}{
		{operator, "enqueue mails x", "queue grant mails ROLE --enqueue"},
		{operator, "work mails --exec true", "queue grant mails ROLE --work"},
		{operator, "dead list others", "queue grant others ROLE --operate"},
		{operator, "dead show others 1", "queue grant others ROLE --operate"},
		{operator, "dead discard others 1", "queue grant others ROLE --operate"},
		{operator, "publish orders --payload x", "outbox grant orders ROLE --publish"},
		{operator, "tail orders", "outbox grant ROLE --relay"},
		{operator, "outbox list", "outbox grant ROLE --relay"},
		{operator, "inbox list", "inbox grant CONSUMER ROLE --operate"},
		{operator, "inbox held billing", "inbox grant billing ROLE --operate"},
		{operator, "queue drop mails --yes", "only the owner of the schema may do this"},
		{operator, "outbox create more", "only the owner of the schema may do this"},
		{enqueuer, "queue pause mails", "queue grant mails ROLE --operate"},
		{enqueuer, "job cancel mails 1", "queue grant mails ROLE --operate"},
		{enqueuer, "queue list", "queue grant QUEUE ROLE --operate"},
		{enqueuer, "schedule drop mails x", "only the owner of the schema may do this"},
		{operator, "schedule pause mails x", "only the owner of the schema may do this"},
		{operator, "schedule run mails x", "only the owner of the schema may do this"},
		{producer, "tail orders", "outbox grant ROLE --relay"},
		{producer, "parked orders", "outbox grant ROLE --relay"},
		{relay, "publish orders --payload x", "outbox grant orders ROLE --publish"},
		{relay, "queue pause mails", "queue grant mails ROLE --operate"},
		{relay, "dead list mails", "queue grant mails ROLE --operate"},
		{relay, "relay --outbox orders --sink queue:mails --log-level error", "queue grant mails ROLE --enqueue"},
		{enqueuer, "relay --outbox orders --sink queue:mails --log-level error", "outbox grant ROLE --relay"},
		{relay, "outbox set orders --retain-age 1h", "only the owner of the schema may do this"},
		{none, "work mails --exec true", "permission denied for schema penstock (SQLSTATE 42501): the owner of the schema can grant it: penstock queue grant mails ROLE --work\n"},
		{none, "relay --outbox orders --sink queue:mails --log-level error", "can grant it: penstock outbox grant ROLE --relay\n"},
		{none, "enqueue mails x", "can grant it: penstock queue grant mails ROLE --enqueue\n"},
		{none, "job list mails", "can grant it: penstock queue grant mails ROLE --operate\n"},
		{none, "queue list", "can grant it: penstock queue grant QUEUE ROLE --operate\n"},
		{none, "inbox held billing", "can grant it: penstock inbox grant billing ROLE --operate\n"},
		{none, "tail orders", "can grant it: penstock outbox grant ROLE --relay\n"},
		{watcher, "inbox held shipping", "inbox grant shipping ROLE --operate"},
		{watcher, "inbox set billing --keep 1h", "only the owner of the schema may do this"},
	} {
		o := refused.as(terminal.ExitDatabase, refused.hint, strings.Fields(refused.verb)...)
		if strings.Count(o.stderr, " grant ")+strings.Count(o.stderr, "only the owner") != 1+strings.Count(o.stderr, "can grant it") {
			t.Errorf("%s: more than one next step: %s", refused.verb, o.stderr)
		}
	}
}

// Each right of the table in docs/reference/cli.md is enough for the commands in its rows, and doctor reports the parts that it did not
// examine.
func TestPrivilegesAreEnough(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.outbox("orders", numbered(1)...)
	d.relay("orders", "billing", deliver)
	for _, verb := range []string{"queue create mails", "enqueue mails {}", "enqueue mails {} --delay 1h", "inbox create billing"} {
		d.must(strings.Fields(verb)...)
	}
	other := postgrestest.On(t, database)
	other.Exec("begin isolation level repeatable read")
	other.Exec("select 1")
	for i, c := range []struct {
		grant  string
		enough []string
		ready  bool     // the exporter is
		lacks  []string // next steps for the parts that doctor did not examine
		says   []string // findings of doctor about the rest
		never  []string
	}{
		{"outbox grant ROLE --relay", []string{"status orders", "dead list orders", "parked orders", "explain orders", "migrate --check"}, true,
			[]string{"queue grant QUEUE ROLE --operate", "grant pg_read_all_stats to ROLE"}, []string{"no relay stands still", "outboxes have no dead letters"}, []string{"workers", "vacuum-horizon"}},
		{"queue grant mails ROLE --operate", []string{"status mails", "dead list mails", "queue pause mails", "queue resume mails", "migrate --check"}, true,
			[]string{"outbox grant ROLE --relay", "only the owner of the schema", "grant pg_read_all_stats to ROLE"}, []string{"queues have no dead letters"}, []string{"workers", "relay", "vacuum-horizon"}},
		{"inbox grant billing ROLE --operate", []string{"inbox list", "inbox held billing", "inbox gaps billing", "migrate --check"}, true,
			[]string{"outbox grant ROLE --relay", "queue grant QUEUE ROLE --operate", "grant pg_read_all_stats to ROLE"}, nil, []string{"dead-letters", "backlog", "queue", "vacuum-horizon"}},
		{"queue grant mails ROLE --work", nil, false,
			[]string{"outbox grant ROLE --relay", "queue grant QUEUE ROLE --operate", "grant pg_read_all_stats to ROLE"}, nil, []string{"dead-letters", "backlog", "queue", "vacuum-horizon"}},
		{"queue grant mails ROLE --enqueue", []string{"enqueue mails {}"}, false,
			[]string{"outbox grant ROLE --relay", "queue grant QUEUE ROLE --operate", "grant pg_read_all_stats to ROLE"}, nil, []string{"dead-letters", "backlog", "queue", "vacuum-horizon"}},
		{"outbox grant orders ROLE --publish", []string{"publish orders --payload x"}, false,
			[]string{"outbox grant ROLE --relay", "queue grant QUEUE ROLE --operate", "grant pg_read_all_stats to ROLE"}, nil, []string{"dead-letters", "backlog", "queue", "vacuum-horizon"}},
	} {
		t.Run(c.grant, func(t *testing.T) {
			role := fmt.Sprintf("penstock_may_%d_%d", i, os.Getpid())
			makeRole(t, database, role)
			d.must(strings.Fields(strings.ReplaceAll(c.grant, "ROLE", role))...)
			u, err := url.Parse(database)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.User(role)
			for _, verb := range c.enough {
				invoke(t, append(strings.Fields(verb), "--database-url", u.String())...).wants(t, terminal.ExitOK, "")
			}
			invoke(t, "explain", "mails", "--database-url", u.String()).wants(t, terminal.ExitDatabase, "only the owner of the schema may do this")
			var report struct{ Findings []doctor.Finding }
			if err := json.Unmarshal([]byte(invoke(t, "doctor", "--measure", "1ms", "--json", "--database-url", u.String()).stdout), &report); err != nil {
				t.Fatal(err)
			}
			var lacks, says strings.Builder
			var about []string
			for _, f := range report.Findings {
				switch {
				case f.Check == doctor.CheckNotLookedAt && f.Severity != doctor.Unknown:
					t.Errorf("not looked at, and %s: %+v", f.Severity, f)
				case f.Check == doctor.CheckNotLookedAt:
					fmt.Fprintln(&lacks, f.Next)
					about = append(about, f.About)
					if strings.Contains(f.Next, " grant ") && f.Why != doctor.NotItsWork {
						t.Errorf("doctor advises a right that the role does not need for its work, without a word about that: %+v", f)
					}
				case f.Severity == doctor.OK && slices.Contains(c.never, f.Check):
					t.Errorf("the role may not see all of it, and is told: %+v", f)
				default:
					fmt.Fprintln(&says, f.Found)
				}
			}
			for _, next := range c.lacks {
				contains(t, lacks.String(), strings.ReplaceAll(next, "to ROLE", `to "`+role+`"`))
			}
			if operates := strings.HasPrefix(c.grant, "queue grant mails ROLE --operate"); slices.Contains(about, "jobs that fail") != operates {
				t.Errorf("jobs that fail: not looked at are %q", about)
			}
			contains(t, says.String(), c.says...)
			store, err := postgres.Open(t.Context(), u.String(), postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if problems := metrics.New(metrics.Options{Store: store, StatusTimeout: postgrestest.Deadline, Logger: slog.New(slog.DiscardHandler)}).Problems(); (len(problems) == 0) != c.ready {
				t.Errorf("an exporter is not ready because of %v", problems)
			}
		})
	}
}

// On plain tables a role that may not read one of them gets an error with the grant, and sees the rest.
func TestPartsOfPlainTables(t *testing.T) {
	t.Parallel()
	role := fmt.Sprintf("penstock_sees_%d", os.Getpid())
	sees := func(t *testing.T, of *url.URL, grant, schema string, flags ...string) {
		flags = append(flags, "--schema", schema, "--database-url", of.String())
		o := invoke(t, append([]string{"status"}, flags...)...)
		o.wants(t, terminal.ExitOK, "queues are not shown: this role may not read them")
		contains(t, o.stdout, "orders", "billing")
		invoke(t, append([]string{"status", "mails"}, flags...)...).wants(t, terminal.ExitDatabase, grant)
		var report struct{ Findings []doctor.Finding }
		if err := json.Unmarshal([]byte(invoke(t, append([]string{"doctor", "--measure", "1ms", "--json"}, flags...)...).stdout), &report); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool {
			return f.Check == doctor.CheckNotLookedAt && f.Severity == doctor.Unknown && f.About == "queues" && strings.Contains(f.Next, grant)
		}) {
			t.Errorf("doctor does not say which grant is missing for queues: %+v", report.Findings)
		}
	}
	made := func(t *testing.T, of *url.URL, schema string, flags ...string) {
		for _, verb := range []string{"migrate", "outbox create orders", "queue create mails", "inbox create billing"} {
			must(t, slices.Concat(strings.Fields(verb), flags, []string{"--schema", schema, "--database-url", of.String()})...)
		}
	}
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		of, err := url.Parse(testserver.MariaDBDatabase(t))
		if err != nil {
			t.Fatal(err)
		}
		schema := strings.TrimPrefix(of.Path, "/")
		made(t, of, schema)
		db, err := mysql.Connect(of.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		exec := func(sql string) {
			if _, err := db.ExecContext(context.Background(), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
		exec("create user " + role)
		t.Cleanup(func() { exec("drop user " + role) })
		for _, table := range []string{"version", "outboxes", "outbox_orders", "subscriptions", "entries", "progress", "queues", "leases", "tries", "dead_jobs", "inboxes", "held", "gaps"} {
			exec("grant select on " + table + " to " + role)
		}
		of.User = url.User(role)
		sees(t, of, "grant select on `"+schema+"`.* to the user", schema)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		database := testserver.Database(t, testserver.PostgresURL(t))
		of, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		made(t, of, "plain", "--profile", "portable")
		makeRole(t, database, role)
		execute(t, database, "grant usage on schema plain to "+role+"; grant select on all tables in schema plain to "+role+"; revoke select on plain.queue_mails from "+role)
		of.User = url.User(role)
		sees(t, of, "grant select on all tables in schema plain to ROLE", "plain", "--profile", "portable")
	})
}
