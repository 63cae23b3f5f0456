package check_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
)

// The tables of published experiments, as their authors created them.

func TestDotnetWithoutIndex(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(50_000, 10_000)
	r := f.check(cfg)
	missing := find(t, r, check.CodeMissingIndex)
	if missing.Severity != check.Warning || len(missing.Evidence.Plan) == 0 || r.Table.Rows != 50_000 {
		t.Errorf("%+v of %+v", missing, r.Table)
	}
	const want = `create index concurrently "outbox_messages_waiting_idx" on "public"."outbox_messages" ("occurred_on_utc", "id") where "processed_on_utc" is null`
	same(t, "the statement", missing.Fix[0].SQL, want)
	// For small contents of unlimited types, the user decides about the covering index.
	if s := missing.Fix[1]; !s.Alternative || !strings.Contains(s.SQL, `include ("content", "type")`) && !strings.Contains(s.SQL, `include ("type", "content")`) || !strings.Contains(s.Risk, "2,704") {
		t.Errorf("%+v", s)
	}
	f.exec(want)
	if r = f.check(cfg); !r.Clean() || has(r, check.CodeMissingIndex) {
		t.Errorf("with the index:\n%s", text(t, r))
	}
}

func TestEventsWithDeadPrefix(t *testing.T) {
	f := newFixture(t)
	cfg := f.events(100_000)
	if r := f.check(cfg); !r.Clean() || has(r, check.CodeDeadPrefix) {
		t.Fatalf("before the delete:\n%s", text(t, r))
	}
	pinned := f.pin()
	f.exec("delete from events where id <= 50000", "vacuum events")
	r := f.check(cfg)
	dead := find(t, r, check.CodeDeadPrefix)
	var first, marked float64
	for _, figure := range dead.Evidence.Figures {
		switch figure.Name {
		case "pages touched":
			first = figure.Value
		case "pages touched from the first row on":
			marked = figure.Value
		}
	}
	// From the mark on, the read touches three levels of the index and two rows. PostgreSQL also counts catalogue pages if its caches
	// were just invalidated, for example by autovacuum: once that made twelve in all. The scan of half of the index must be gone.
	if first < 500 || marked < 1 || marked > first/10 {
		t.Errorf("%v pages, %v with a low-water mark\n%s", first, marked, text(t, r))
	}
	if has(r, check.CodeDeadRows) {
		t.Errorf("the rest of the table is clean:\n%s", text(t, r))
	}
	f.must(pinned.Rollback(f.ctx))
	f.exec("vacuum events")
	if r := f.check(cfg); has(r, check.CodeDeadPrefix) {
		t.Errorf("after the snapshot and a vacuum:\n%s", text(t, r))
	}
}
