package check_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/internal/adopted"
)

func TestBloat(t *testing.T) {
	f := newFixture(t)
	f.exec("create table outbox (id bigint primary key, ts timestamptz not null, message text) with (autovacuum_enabled = off)",
		"create index outbox_ts on outbox (ts, id)",
		"insert into outbox select i, now(), repeat(md5(i::text), 5) from generate_series(1, 300000) i", "vacuum analyze outbox")
	cfg := adopted.Config{Preset: "message"}
	bloated := func(want bool, when, how string) {
		t.Helper()
		r := f.check(cfg)
		if has(r, check.CodeBloat) != want || has(r, check.CodeIndexBloat) != want {
			t.Fatalf("%s, want %v:\n%s", when, want, text(t, r))
		}
		if !want {
			return
		}
		same(t, when+": how it is known", find(t, r, check.CodeBloat).Evidence.Figures[1].Name, "rows, "+how)
		if fix := find(t, r, check.CodeIndexBloat).Fix[0].SQL; fix != `reindex index concurrently "public"."outbox_pkey"` && fix != `reindex index concurrently "public"."outbox_ts"` {
			t.Error(fix)
		}
	}
	bloated(false, "full", "")
	f.exec("delete from outbox where id % 8 <> 0", "vacuum analyze outbox")
	bloated(true, "after the delete", "estimated from statistics")
	f.exec("create schema tools", "create extension pgstattuple schema tools")
	bloated(true, "measured", "by pgstattuple")
	f.exec("vacuum full outbox", "vacuum analyze outbox")
	bloated(false, "written anew", "")
}

func TestVacuumBehind(t *testing.T) {
	f := newFixture(t)
	f.exec("create table outbox (id bigint primary key, ts timestamptz not null, message text) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)",
		"create index on outbox (ts, id)", "insert into outbox select i, now(), 'm' from generate_series(1, 60000) i", "analyze outbox")
	cfg := adopted.Config{Preset: "message"}
	if r := f.check(cfg); has(r, check.CodeVacuumBehind) {
		t.Fatalf("too early:\n%s", text(t, r))
	}
	pinned := f.pin() // to keep autovacuum from removing them
	f.exec("delete from outbox where id <= 59000")
	f.eventually("the dead rows are counted", "select n_dead_tup >= 59000 from pg_stat_all_tables where relid = 'outbox'::regclass")
	if found := find(t, f.check(cfg), check.CodeVacuumBehind); !strings.Contains(found.Title, "59,000") {
		t.Errorf("%+v", found)
	}
	f.must(pinned.Rollback(f.ctx))
	f.exec("vacuum outbox")
	f.eventually("the vacuum is counted", "select n_dead_tup = 0 from pg_stat_all_tables where relid = 'outbox'::regclass")
	if r := f.check(cfg); has(r, check.CodeVacuumBehind) {
		t.Errorf("after a vacuum:\n%s", text(t, r))
	}
}

func TestPartitioned(t *testing.T) {
	f := newFixture(t)
	f.exec("create table outbox (id bigint not null, ts timestamptz not null, message text, primary key (ts, id)) partition by range (ts)",
		"create table outbox_a partition of outbox for values from (minvalue) to ('2026-01-01')",
		`create table "outbox B" partition of outbox for values from ('2026-01-01') to (maxvalue)`,
		"insert into outbox select i, '2025-12-31'::timestamptz + make_interval(secs => i * 100), 'm' from generate_series(1, 2000) i", "vacuum analyze outbox")
	cfg := adopted.Config{Preset: "message"}
	if r := f.check(cfg); codes(r) != "partitioned commit-order" || r.Table.Rows != 2000 || r.Table.Bytes == 0 {
		t.Errorf("with an index on all:\n%s", text(t, r))
	}
	cfg.Columns.Order = []string{"id"}
	fix := find(t, f.check(cfg), check.CodeMissingIndex).Fix
	var all []string
	for _, s := range fix {
		f.exec(s.SQL)
		all = append(all, s.SQL)
	}
	same(t, "the statements", strings.Join(all, "\n"), `create index concurrently "outbox B_waiting_idx" on "public"."outbox B" ("id")
create index concurrently "outbox_a_waiting_idx" on "public"."outbox_a" ("id")
create index "outbox_waiting_idx" on "public"."outbox" ("id")`)
	if r := f.check(cfg); has(r, check.CodeMissingIndex) {
		t.Errorf("after the fix:\n%s", text(t, r))
	}
	if n := f.number("select count(*) from pg_index where indrelid = 'outbox_a'::regclass"); n != 2 {
		t.Errorf("the partition has %d indexes: the one on the whole was built again", n)
	}
}

// Only old holders count, and the caller chooses the age.
func TestOldSnapshot(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	f.pin()
	if r := f.check(cfg); has(r, check.CodeOldSnapshot) {
		t.Errorf("it is young:\n%s", text(t, r))
	}
	r := f.checkWith(f.conn, cfg, check.Options{OldSnapshot: time.Nanosecond})
	found := find(t, r, check.CodeOldSnapshot)
	if !strings.Contains(found.Title, "idle in a transaction") || !strings.HasPrefix(found.Fix[0].SQL, "select pg_terminate_backend(") {
		t.Errorf("%+v", found)
	}
	f.exec(found.Fix[0].SQL)
	f.eventually("the session has ended", "select not exists (select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and backend_xmin is not null)")
	if r := f.checkWith(f.conn, cfg, check.Options{OldSnapshot: time.Nanosecond}); has(r, check.CodeOldSnapshot) {
		t.Errorf("after its end:\n%s", text(t, r))
	}
}
