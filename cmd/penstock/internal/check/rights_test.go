package check_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/internal/adopted"
)

// role creates a role for the test that can log in and has no other right.
func (f *fixture) role() string {
	f.Helper()
	u := strings.Split(f.url, "/penstock_test_")[1]
	name := "penstock_check_" + strings.Split(u, "?")[0]
	f.exec("create role " + name + " login")
	f.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), f.url)
		if err != nil {
			f.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "drop owned by "+name+"; drop role "+name, pgx.QueryExecModeSimpleProtocol); err != nil {
			f.Error(err)
		}
	})
	return name
}

// A role with few rights still gets a report, with the rights that it lacks and the things that it
// could not see. After the grants that the report suggests, the report is complete.
func TestFewRights(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	cfg.Table = "public.outbox"
	role := f.role()
	f.pin()
	conn := f.as(role)
	r := f.checkWith(conn, cfg, check.Options{})
	lacks := find(t, r, check.CodePermission)
	if lacks.Severity != check.Critical || len(lacks.Fix) != 1 {
		t.Errorf("%+v", lacks)
	}
	const want = `grant select ("at", "id", "key", "payload", "topic", "done_at"), update ("done_at", "attempts") on "public"."outbox" to `
	if !strings.HasPrefix(lacks.Fix[0].SQL, want) {
		t.Errorf("%s, want %s", lacks.Fix[0].SQL, want)
	}
	var unseen []string
	for _, u := range r.Unseen {
		unseen = append(unseen, u.What)
	}
	for _, what := range []string{"the plan of the read", "how large the contents are", "since when the sessions of other roles are in a transaction"} {
		if !strings.Contains(strings.Join(unseen, "\n"), what) {
			t.Errorf("%q is not among what was not seen: %q", what, unseen)
		}
	}
	f.exec(lacks.Fix[0].SQL)
	if r = f.checkWith(conn, cfg, check.Options{}); codes(r) != check.CodeCommitOrder {
		t.Errorf("with the rights:\n%s", text(t, r))
	}

	// The necessary rights depend on the way to mark delivered rows.
	cfg.Columns.ProcessedAt, cfg.Columns.Attempts, cfg.Delivered, cfg.Workers = "", "", adopted.Delete, 2
	f.exec(`revoke update ("done_at", "attempts") on outbox from ` + role)
	lacks = find(t, f.checkWith(conn, cfg, check.Options{}), check.CodePermission)
	if want := `grant update ("id"), delete on "public"."outbox" to `; !strings.HasPrefix(lacks.Fix[0].SQL, want) {
		t.Errorf("%s, want %s", lacks.Fix[0].SQL, want)
	}
	f.exec("create table outbox_done (like outbox)", lacks.Fix[0].SQL)
	cfg.Delivered, cfg.Archive = adopted.Archive, "public.outbox_done"
	lacks = find(t, f.checkWith(conn, cfg, check.Options{}), check.CodePermission)
	if want := `grant insert on "public"."outbox_done" to `; !strings.HasPrefix(lacks.Fix[0].SQL, want) {
		t.Errorf("%s, want %s", lacks.Fix[0].SQL, want)
	}
	f.exec(lacks.Fix[0].SQL)
	if r = f.checkWith(conn, cfg, check.Options{}); has(r, check.CodePermission) {
		t.Errorf("with the rights:\n%s", text(t, r))
	}
}

func TestSchemaWithoutUsage(t *testing.T) {
	f := newFixture(t)
	f.exec(`create schema "Other one"`, `create table "Other one".outbox (ts timestamptz, id bigint primary key, message text)`)
	role := f.role()
	cfg := adopted.Config{Preset: "message", Table: `Other one.outbox`}
	cfg.SetDefaults()
	_, err := check.Run(f.ctx, f.as(role), cfg, check.Options{})
	if err == nil || !strings.Contains(err.Error(), "Other one") {
		t.Errorf("%v", err)
	}
	f.exec(`grant usage on schema "Other one" to ` + role)
	if r := f.checkWith(f.as(role), cfg, check.Options{}); !has(r, check.CodePermission) {
		t.Errorf("it has no right on the table:\n%s", text(t, r))
	}
}

func TestRowSecurity(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	role := f.role()
	f.exec("grant select, update on outbox to "+role, "alter table outbox enable row level security")
	if r := f.check(cfg); has(r, check.CodeRowSecurity) {
		t.Errorf("it does not hold for the owner:\n%s", text(t, r))
	}
	found := find(t, f.checkWith(f.as(role), cfg, check.Options{}), check.CodeRowSecurity)
	f.exec(found.Fix[0].SQL)
	if n := f.number("select count(*) from outbox"); n != 5000 {
		t.Error(n)
	}
}

// Names are used exactly: quotes, spaces, upper case, another schema, other scripts.
func TestNames(t *testing.T) {
	f := newFixture(t)
	const table = `select 'x'; Ü 漢字`
	name := pgx.Identifier{"Odd schema", table}.Sanitize()
	f.exec(`create schema "Odd schema"`,
		"create table "+name+` (" Id" bigint primary key, "at ""time" timestamptz not null default now(), "Pay,load" text, "done?" timestamptz)`,
		"insert into "+name+` select i from generate_series(1, 100) i`, "analyze "+name)
	cfg := adopted.Config{Table: "Odd schema", Columns: adopted.Columns{ID: " Id", Order: []string{`at "time`}, Payload: "Pay,load", ProcessedAt: "done?"}}
	if _, err := check.Run(f.ctx, f.conn, defaults(cfg), check.Options{}); err == nil || !strings.Contains(err.Error(), "there is no table") {
		t.Errorf("a table that does not exist: %v", err)
	}
	cfg.Table = "Odd schema." + table
	r := f.check(cfg)
	done, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: func(check.Statement) bool { return true }})
	if err != nil || len(done) != 1 || done[0].Outcome != check.Created {
		t.Fatalf("%+v, %v", done, err)
	}
	if r = f.check(cfg); !r.Clean() {
		t.Errorf("after the fix:\n%s", text(t, r))
	}
}

func defaults(cfg adopted.Config) adopted.Config { cfg.SetDefaults(); return cfg }

// A query that takes too long is skipped, and reported.
func TestTimeout(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	tx, err := f.connect(f.url).Begin(f.ctx)
	f.must(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(f.ctx, "lock table outbox")
	f.must(err)
	r := f.checkWith(f.conn, cfg, check.Options{Timeout: time.Second})
	if len(r.Unseen) == 0 || has(r, check.CodeMissingIndex) {
		t.Errorf("the table is locked:\n%s", text(t, r))
	}
	var refused *penstock.FieldError
	if _, err := check.Run(f.ctx, f.conn, defaults(adopted.Config{}), check.Options{}); !errors.As(err, &refused) {
		t.Errorf("without a table: %v", err)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	if _, err := check.Run(ctx, f.connect(f.url), defaults(cfg), check.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A check leaves nothing behind: no row, no setting, no transaction. It does not write even if the
// session's defaults would allow it.
func TestChangesNothing(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	const state = `select count(*) + sum(hashtext(o::text || o.xmin::text || o.ctid::text))::bigint from outbox o`
	before := f.number(state)
	conn := f.connect(f.url)
	_, err := conn.Exec(f.ctx, "set statement_timeout = '17s'")
	f.must(err)
	f.checkWith(conn, cfg, check.Options{})
	var timeout, path, scans string
	f.must(conn.QueryRow(f.ctx, "select current_setting('statement_timeout'), current_setting('search_path'), current_setting('enable_seqscan')").Scan(&timeout, &path, &scans))
	if timeout != "17s" || path != `"$user", public` || scans != "on" || conn.PgConn().TxStatus() != 'I' {
		t.Errorf("it leaves timeout %s, path %s, scans %s, %c", timeout, path, scans, conn.PgConn().TxStatus())
	}
	if after := f.number(state); after != before {
		t.Error("rows have changed")
	}
}
