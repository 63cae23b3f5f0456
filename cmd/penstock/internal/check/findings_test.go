package check_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/internal/adopted"
)

// A healthy table has a clean report: any other finding than these notes would be a false alarm.
// Each of the tests below starts with it.
func TestHealthy(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	r := f.check(cfg)
	if codes(r) != check.CodeCommitOrder || !r.Clean() || len(r.Unseen) > 0 {
		t.Errorf("a healthy table:\n%s", text(t, r))
	}
	if r.Table.Rows != 5000 || r.Table.Server == "" || r.Table.Schema != "public" || r.Table.TotalBytes < r.Table.Bytes+r.Table.IndexBytes {
		t.Errorf("%+v", r.Table)
	}
	// The report is also clean if delivered rows leave the table.
	f.exec("delete from outbox where done_at is not null", "drop index outbox_waiting_idx", "create index on outbox (at, id)", "vacuum analyze outbox")
	cfg.Columns.ProcessedAt, cfg.Delivered = "", adopted.Delete
	if r = f.check(cfg); codes(r) != check.CodeCommitOrder {
		t.Errorf("a healthy table:\n%s", text(t, r))
	}
}

// Deliberately bad tables: the finding is reported, it names the statement to run, and if that can
// be run, the finding is gone afterwards.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name     string
		setup    []string // on the healthy table
		change   func(*adopted.Config)
		code     string
		severity check.Severity
		says     string // the title contains it
		fix      string // the first statement, if there is one
		stays    bool   // the fix is not run
	}{
		{name: "no such column", change: func(c *adopted.Config) { c.Columns.Key, c.Topic = "account", "t.{kind}" },
			code: check.CodeColumn, severity: check.Critical, says: `columns.key is the column "account", which "public"."outbox" does not have`},
		{name: "a column of another type", change: func(c *adopted.Config) { c.Columns.Payload = "attempts" },
			code: check.CodeColumn, severity: check.Critical, says: `columns.payload is the column "attempts" of type integer`},
		{name: "an id that may be NULL", setup: []string{"alter table outbox drop constraint outbox_pkey, alter id drop identity, alter id drop not null", "create unique index on outbox (id)"},
			code: check.CodeColumn, severity: check.Critical, says: "may be NULL", fix: `alter table "public"."outbox" alter column "id" set not null`},
		{name: "no archive", change: func(c *adopted.Config) { c.Columns.ProcessedAt, c.Archive = "", "outbox_done" },
			code: check.CodeColumn, severity: check.Critical, says: `no archive "outbox_done"`, fix: `create table "outbox_done" (like "public"."outbox")`},
		{name: "an archive that lacks columns", setup: []string{"create table outbox_done (id bigint, at timestamptz, key text, topic text, payload jsonb, attempts int)"},
			change: func(c *adopted.Config) { c.Columns.ProcessedAt, c.Archive = "", "outbox_done" },
			code:   check.CodeColumn, severity: check.Critical, says: `lacks columns: "done_at"`},

		{name: "unlogged", setup: []string{"alter table outbox set unlogged"},
			code: check.CodeUnlogged, severity: check.Critical, fix: `alter table "public"."outbox" set logged`},
		{name: "no key", setup: []string{"alter table outbox drop constraint outbox_pkey", "create index on outbox (id)"},
			code: check.CodeNoKey, severity: check.Critical, fix: `create unique index concurrently "outbox_id_key" on "public"."outbox" ("id")`},
		{name: "a key of the id and more", setup: []string{"alter table outbox drop constraint outbox_pkey, add primary key (id, attempts)"},
			code: check.CodeNoKey, severity: check.Critical, fix: `create unique index concurrently "outbox_id_key" on "public"."outbox" ("id")`},
		{name: "referenced", setup: []string{"create table sent (message bigint references outbox)", "create index on sent (message)", "insert into sent select id from outbox limit 1"},
			change: deletes, code: check.CodeReferenced, severity: check.Critical, says: `"sent"`, fix: `alter table "public"."sent" drop constraint "sent_message_fkey"`},
		{name: "referenced without an index", setup: []string{"create table sent (message bigint references outbox on delete cascade)"},
			change: deletes, code: check.CodeReferenced, severity: check.Warning, fix: `create index concurrently "sent_message_idx" on "public"."sent" ("message")`, stays: true},

		{name: "no index", setup: []string{"drop index outbox_waiting_idx"},
			code: check.CodeMissingIndex, severity: check.Warning, fix: `create index concurrently "outbox_waiting_idx" on "public"."outbox" ("at", "id") where "done_at" is null`},
		{name: "an index in another order", setup: []string{"drop index outbox_waiting_idx", "create index on outbox (done_at, at, id)"},
			code: check.CodeMissingIndex, severity: check.Warning, fix: `create index concurrently "outbox_waiting_idx" on "public"."outbox" ("at", "id") where "done_at" is null`},
		{name: "an index for other rows", setup: []string{"drop index outbox_waiting_idx", "create index outbox_waiting_idx on outbox (at, id) where topic = 'x' and done_at is null"},
			code: check.CodeMissingIndex, severity: check.Warning, fix: `create index concurrently "outbox_waiting_idx2" on "public"."outbox" ("at", "id") where "done_at" is null`},
		{name: "an index that others have left half made", setup: []string{"drop index outbox_waiting_idx", "alter table outbox add constraint twice check (true)",
			"create index outbox_waiting_idx on outbox (at, id) where done_at is null", "update pg_index set indisvalid = false where indexrelid = 'outbox_waiting_idx'::regclass"},
			code: check.CodeInvalidIndex, severity: check.Warning, says: `"outbox_waiting_idx"`, fix: `drop index concurrently "public"."outbox_waiting_idx"`},
		{name: "an index without the id", setup: []string{"drop index outbox_waiting_idx", "create index on outbox (at) where done_at is null"},
			code: check.CodeTieBreak, severity: check.Note, fix: `create index concurrently "outbox_waiting_idx" on "public"."outbox" ("at", "id") where "done_at" is null`},
		{name: "an index with delivered rows", setup: []string{"drop index outbox_waiting_idx", "create index on outbox (at, id)"},
			code: check.CodeNotPartial, severity: check.Warning, fix: `create index concurrently "outbox_waiting_idx" on "public"."outbox" ("at", "id") where "done_at" is null`},
		{name: "an index on a status that is another", setup: []string{"alter table outbox add status text not null default 'pending'", "update outbox set status = 'sent' where done_at is not null", "vacuum analyze outbox",
			"create index on outbox (at, id) where status = 'sent'"},
			change: func(c *adopted.Config) { c.Columns.ProcessedAt, c.Columns.Status = "", "status" },
			code:   check.CodeMissingIndex, severity: check.Warning, fix: `create index concurrently "outbox_waiting_idx2" on "public"."outbox" ("at", "id") where "status" = 'pending'`},
		{name: "an index on one of two states", setup: []string{"alter table outbox add status text not null default 'it''s new'", "create index on outbox (at, id) where status = 'again'"},
			change: func(c *adopted.Config) {
				c.Columns.ProcessedAt, c.Columns.Status, c.Status.Pending = "", "status", []adopted.Value{"it's new", `again\`}
			},
			code: check.CodeMissingIndex, severity: check.Warning, fix: `create index concurrently "outbox_waiting_idx2" on "public"."outbox" ("at", "id") where "status" in ('it''s new', E'again\\')`},

		{name: "two alike", setup: []string{"create index zz on outbox (at, id) where done_at is null"},
			code: check.CodeDuplicateIndex, severity: check.Warning, says: `"zz" is the same as "outbox_waiting_idx"`, fix: `drop index concurrently "public"."zz"`},
		{name: "a twin of the primary key", setup: []string{"create index aa on outbox (id)"},
			code: check.CodeDuplicateIndex, severity: check.Warning, says: `"aa" is the same as "outbox_pkey"`, fix: `drop index concurrently "public"."aa"`},
		{name: "the mark in the index", setup: []string{"drop index outbox_waiting_idx", "create index on outbox (at, done_at, id) where done_at is null"},
			code: check.CodeMarkedIndexed, severity: check.Note, says: `"done_at"`},
		{name: "an index on the mark", setup: []string{"create index done on outbox (done_at)"},
			code: check.CodeMarkedIndexed, severity: check.Note, says: `the index "done" contains "done_at"`},

		{name: "a sequence with a cache", setup: []string{"alter sequence outbox_id_seq cache 50"}, change: func(c *adopted.Config) { c.Columns.Order = nil },
			code: check.CodeSequenceCache, severity: check.Warning, says: "50 numbers", fix: `alter sequence public.outbox_id_seq cache 1`},
		{name: "a sequence of a default", setup: []string{`create sequence "Odd seq" cache 20`, `alter table outbox add n bigint not null default nextval('"Odd seq"')`}, change: func(c *adopted.Config) { c.Columns.Order = []string{"n"} },
			code: check.CodeSequenceCache, severity: check.Warning, fix: `alter sequence public."Odd seq" cache 1`},
		{name: "random ids", setup: []string{"alter table outbox add u uuid not null default gen_random_uuid()"}, change: func(c *adopted.Config) { c.Columns.Order = []string{"u"} },
			code: check.CodeRandomOrder, severity: check.Critical, says: `"u" (uuid)`, fix: `alter table "public"."outbox" add column seq bigint generated always as identity`, stays: true},
		{name: "an order by text", change: func(c *adopted.Config) { c.Columns.Order, c.Workers = []string{"topic"}, 4 },
			code: check.CodeRandomOrder, severity: check.Warning, says: `"topic" (text)`, fix: `alter table "public"."outbox" add column seq bigint generated always as identity`, stays: true},
		{name: "local time", setup: []string{"drop index outbox_waiting_idx", "alter table outbox alter at type timestamp", "create index on outbox (at, id) where done_at is null"},
			code: check.CodeLocalTime, severity: check.Note, fix: `alter table "public"."outbox" alter column "at" type timestamptz using "at" at time zone 'UTC'`},

		{name: "a trigger for each row", setup: []string{noFunction, "create trigger each after insert or update on outbox for each row execute function no()"},
			code: check.CodeRowTrigger, severity: check.Warning, says: `"each"`, fix: `begin; drop trigger "each" on "public"."outbox"; ` +
				`create trigger "each_insert" after insert on "public"."outbox" referencing new table as inserted for each statement execute function public.no(); ` +
				`create trigger "each_update" after update on "public"."outbox" referencing old table as before new table as after for each statement execute function public.no(); commit`},
		{name: "a trigger before each row", setup: []string{noFunction, "create trigger each before insert on outbox for each row execute function no()"},
			code: check.CodeRowTrigger, severity: check.Warning},
		{name: "a constraint trigger", setup: []string{noFunction, "create constraint trigger each after insert on outbox deferrable for each row execute function no()"},
			code: check.CodeRowTrigger, severity: check.Warning},

		{name: "autovacuum off", setup: []string{"alter table outbox set (autovacuum_enabled = off)"},
			code: check.CodeAutovacuumOff, severity: check.Warning, fix: `alter table "public"."outbox" reset (autovacuum_enabled)`},
		{name: "autovacuum late", setup: []string{"alter table outbox set (autovacuum_vacuum_scale_factor = 20)"},
			code: check.CodeAutovacuumLate, severity: check.Warning, says: "100,050", fix: `alter table "public"."outbox" set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			cfg := f.healthy()
			f.exec(c.setup...)
			if c.change != nil {
				c.change(&cfg)
			}
			r := f.check(cfg)
			found := find(t, r, c.code)
			if found.Severity != c.severity || !strings.Contains(found.Title, c.says) || found.Detail == "" {
				t.Errorf("%s: %s: %s, want %s with %q", found.Code, found.Severity, found.Title, c.severity, c.says)
			}
			if has(r, check.CodeDeadPrefix) || has(r, check.CodeDeadRows) {
				t.Errorf("no row is dead:\n%s", text(t, r))
			}
			if c.fix == "" {
				if len(found.Fix) > 0 {
					t.Errorf("there is a fix: %+v", found.Fix)
				}
				return
			}
			if len(found.Fix) == 0 {
				t.Fatal("there is no statement to run")
			}
			same(t, "the statement", found.Fix[0].SQL, c.fix)
			if c.stays {
				return
			}
			f.exec(found.Fix[0].SQL)
			if r := f.check(cfg); has(r, c.code) {
				t.Errorf("after the fix:\n%s", text(t, r))
			}
		})
	}
}

func deletes(c *adopted.Config) { c.Columns.ProcessedAt, c.Delivered = "", adopted.Delete }

const noFunction = "create function no() returns trigger language plpgsql as 'begin return null; end'"

// Findings that do not matter for the way in which delivered rows are settled are not reported.
func TestNotFound(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	f.exec("create table sent (message bigint references outbox)", noFunction,
		"create trigger deleted after delete on outbox for each row execute function no()",
		"create trigger whole after insert on outbox for each statement execute function no()",
		"create trigger off after insert on outbox for each row execute function no()", "alter table outbox disable trigger off",
		"create unique index on outbox (at, id, topic)", "create index on outbox (at, id) where done_at is null and topic = 'x'")
	if r := f.check(cfg); codes(r) != check.CodeCommitOrder {
		t.Errorf("rows are marked, so none is deleted:\n%s", text(t, r))
	}
}

func TestUnusedIndex(t *testing.T) {
	f := newFixture(t)
	cfg := f.healthy()
	f.exec("create index lonely on outbox (topic)")
	if r := f.check(cfg); has(r, check.CodeUnusedIndex) {
		t.Errorf("nobody has read the table yet:\n%s", text(t, r))
	}
	f.exec(`do $$ declare n int; begin for i in 1 .. 1000 loop select attempts into n from outbox where id = i; end loop; end $$`)
	f.eventually("the scans are counted", "select idx_scan >= 1000 from pg_stat_all_indexes where indexrelname = 'outbox_pkey'")
	r := f.check(cfg)
	if found := find(t, r, check.CodeUnusedIndex); !strings.Contains(found.Title, `"lonely"`) || found.Fix[0].SQL != `drop index concurrently "public"."lonely"` {
		t.Errorf("%+v", found)
	}
	if n := strings.Count(codes(r), check.CodeUnusedIndex); n != 1 {
		t.Errorf("%d are unused:\n%s", n, text(t, r))
	}
}

// The planner's own choice is reported if it differs from the index that Penstock asks for.
func TestPlanUnstable(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(50_000, 40_000)
	f.exec("create index on outbox_messages (occurred_on_utc, id) where processed_on_utc is null")
	if r := f.check(cfg); has(r, check.CodePlanUnstable) {
		t.Fatalf("too early:\n%s", text(t, r))
	}
	f.exec("set enable_indexscan = off; set enable_indexonlyscan = off")
	r := f.check(cfg)
	if found := find(t, r, check.CodePlanUnstable); found.Severity != check.Note || len(found.Evidence.Plan) == 0 {
		t.Errorf("%+v", found)
	}
	if has(r, check.CodeMissingIndex) {
		t.Errorf("the index is there:\n%s", text(t, r))
	}
}

// A mark removes a row from the read's index, so a dead prefix grows there as well. Dead rows
// between waiting ones are reported separately.
func TestScatteredDeadRows(t *testing.T) {
	f := newFixture(t)
	f.exec("create table outbox (id bigint primary key, at timestamptz not null, message text)",
		// Rows in the order of the index are spread over the whole table.
		"insert into outbox select i, now() - make_interval(secs => (i * 7919) % 60013), repeat(md5(i::text), 8) from generate_series(1, 60000) i",
		"create index on outbox (at, id)", "vacuum analyze outbox")
	cfg := adopted.Config{Preset: "message", Columns: adopted.Columns{Order: []string{"at"}}}
	if r := f.check(cfg); has(r, check.CodeDeadRows) || has(r, check.CodeDeadPrefix) {
		t.Fatalf("too early:\n%s", text(t, r))
	}
	pinned := f.pin()
	f.exec("delete from outbox where id % 10 <> 0")
	r := f.check(cfg)
	if found := find(t, r, check.CodeDeadRows); found.Severity != check.Warning || len(found.Evidence.Figures) == 0 {
		t.Errorf("%+v", found)
	}
	if has(r, check.CodeDeadPrefix) {
		t.Errorf("the first row is near:\n%s", text(t, r))
	}
	f.must(pinned.Rollback(f.ctx))
	f.exec("vacuum outbox")
	if r := f.check(cfg); has(r, check.CodeDeadRows) {
		t.Errorf("after the snapshot and a vacuum:\n%s", text(t, r))
	}
}

func TestContents(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(2000, 0)
	f.exec(`update outbox_messages set content = jsonb_build_object('blob', (select string_agg(md5(random()::text), '') from generate_series(1, 300)))
		where id = (select id from outbox_messages limit 1)`)
	r := f.check(cfg)
	big := find(t, r, check.CodeContentTooBig)
	if big.Severity != check.Note || big.Evidence.Figures[0].Value < 2704 || big.Evidence.Figures[1].Value != 2704 {
		t.Errorf("%+v", big)
	}
	for _, s := range find(t, r, check.CodeMissingIndex).Fix {
		if strings.Contains(s.SQL, "include") {
			t.Errorf("it includes what does not fit: %s", s.SQL)
		}
	}

	t.Run("by their types", func(t *testing.T) {
		f := newFixture(t)
		f.exec("create table outbox (id bigint primary key, ts timestamptz not null, message varchar(200))")
		r := f.check(adopted.Config{Preset: "message"})
		fix := find(t, r, check.CodeMissingIndex).Fix
		if len(fix) != 1 || fix[0].SQL != `create index concurrently "outbox_waiting_idx" on "public"."outbox" ("ts", "id") include ("message")` {
			t.Errorf("%+v", fix)
		}
		// A row of the largest possible contents: four bytes per character.
		f.exec(fix[0].SQL, "insert into outbox values (1, now(), repeat(U&'\\+01F600', 200))")
	})
	t.Run("near the limit", func(t *testing.T) {
		f := newFixture(t)
		f.exec("create table outbox (id bigint primary key, ts timestamptz not null, message text)",
			"alter table outbox alter message set storage external", // as JSON that does not compress
			"create index covering on outbox (ts, id) include (message)",
			"insert into outbox select i, now(), repeat('x', 100) from generate_series(1, 100) i")
		if r := f.check(adopted.Config{Preset: "message"}); has(r, check.CodeContentTooBig) {
			t.Fatalf("too early:\n%s", text(t, r))
		}
		f.exec("insert into outbox select 101, now(), string_agg(md5(random()::text), '') from generate_series(1, 55)")
		near := find(t, f.check(adopted.Config{Preset: "message"}), check.CodeContentTooBig)
		if near.Severity != check.Warning || !strings.Contains(near.Title, `"covering"`) || len(near.Fix) != 2 {
			t.Errorf("%+v", near)
		}
	})
}

// The reported limit is the server's own.
func TestIndexRowLimit(t *testing.T) {
	f := newFixture(t)
	f.exec("create table t (a bytea)", "alter table t alter a set storage external", "create index on t (a)")
	fits := func(n int) bool {
		_, err := f.conn.Exec(f.ctx, "insert into t select string_agg(decode(md5(random()::text), 'hex'), '') || '\\x'::bytea || substr('\\x"+strings.Repeat("00", n%16)+"'::bytea, 1) from generate_series(1, $1::int)", n/16)
		return err == nil
	}
	// The row: 8 bytes of header, 4 of the value's length, padded to 8.
	if !fits(2704-8-4) || fits(2704-8-4+1) {
		t.Error("2,704 bytes are not the limit of a row")
	}
}
