package check_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/internal/adopted"
)

func yes(check.Statement) bool { return true }

const waitingIndex = "outbox_messages_waiting_idx"

// state is that of an index: absent, valid or invalid.
func (f *fixture) state(name string) string {
	f.Helper()
	var s string
	f.must(f.conn.QueryRow(f.ctx, `select coalesce((select case when indisvalid then 'valid' else 'invalid' end from pg_index where indexrelid = to_regclass($1)), 'absent')`, name).Scan(&s))
	return s
}

func TestFix(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(50_000, 10_000)
	r := f.check(cfg)
	var asked []string
	done, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: func(s check.Statement) bool { asked = append(asked, s.SQL); return false }})
	if err != nil || len(done) != 1 || done[0].Outcome != check.Declined || len(asked) != 1 || f.state(waitingIndex) != "absent" {
		t.Fatalf("declined: %+v, %v, asked %q, the index is %s", done, err, asked, f.state(waitingIndex))
	}
	if done, err = check.Fix(f.ctx, f.conn, r, check.FixOptions{}); err != nil || done[0].Outcome != check.Declined {
		t.Fatalf("nobody to ask: %+v, %v", done, err)
	}
	var mu sync.Mutex
	var last check.Progress
	f.exec("set lock_timeout = '77s'")
	done, err = check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes, Progress: func(p check.Progress) { mu.Lock(); last = p; mu.Unlock() }})
	if err != nil || len(done) != 1 || done[0].Outcome != check.Created || done[0].Replaced || done[0].Took <= 0 || f.state(waitingIndex) != "valid" {
		t.Fatalf("%+v, %v, the index is %s", done, err, f.state(waitingIndex))
	}
	if last != (check.Progress{}) && last.Index.Name != waitingIndex {
		t.Errorf("%+v", last)
	}
	var timeout string
	f.must(f.conn.QueryRow(f.ctx, "show lock_timeout").Scan(&timeout))
	same(t, "the session's lock_timeout", timeout, "77s")
	if r := f.check(cfg); !r.Clean() {
		t.Errorf("after the fix:\n%s", text(t, r))
	}
	if done, err = check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: func(check.Statement) bool { t.Error("asked for what is there"); return true }}); err != nil || done[0].Outcome != check.Exists {
		t.Errorf("again: %+v, %v", done, err)
	}
}

func TestFixRefuses(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(100, 0)
	r := f.check(cfg)
	tx, err := f.conn.Begin(f.ctx)
	f.must(err)
	if _, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes}); err == nil || !strings.Contains(err.Error(), "in a transaction") {
		t.Errorf("in a transaction: %v", err)
	}
	f.must(tx.Rollback(f.ctx))
	f.exec("create table " + waitingIndex + " ()")
	if _, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes}); err == nil || !strings.Contains(err.Error(), "something else of that name") {
		t.Errorf("the name is taken: %v", err)
	}
}

// Only indexes are created, each once, and no alternatives.
func TestFixRunsNothingElse(t *testing.T) {
	f := newFixture(t)
	f.exec("create table t (a int)")
	create := check.Statement{SQL: `create index concurrently "i" on t (a)`, Creates: &check.Index{Schema: "public", Name: "i"}}
	r := check.Report{Findings: []check.Finding{
		{Fix: []check.Statement{{SQL: "drop table t"}, {SQL: `create index concurrently "j" on t (a)`, Creates: &check.Index{Schema: "public", Name: "j"}, Alternative: true}, create}},
		{Fix: []check.Statement{create}},
	}}
	asked := 0
	done, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: func(check.Statement) bool { asked++; return true }})
	if err != nil || len(done) != 1 || asked != 1 || f.state("i") != "valid" || f.state("j") != "absent" {
		t.Errorf("%+v, %v, asked %d times; i is %s, j %s", done, err, asked, f.state("i"), f.state("j"))
	}
}

// insert opens a transaction that has written to the table.
func (f *fixture) insert() (pgx.Tx, *pgx.Conn) {
	f.Helper()
	conn := f.connect(f.url)
	tx, err := conn.Begin(f.ctx)
	f.must(err)
	_, err = tx.Exec(f.ctx, "insert into outbox_messages (id, type, content, occurred_on_utc) values (gen_random_uuid(), 't', '{}', now())")
	f.must(err)
	return tx, conn
}

// An open transaction delays the index. After the lock timeout, the error names the session that
// it waited for, and the remains. The next attempt replaces it.
func TestFixWaits(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(1000, 0)
	r := f.check(cfg)
	tx, writer := f.insert()
	_, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes, LockTimeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "lock timeout") || !strings.Contains(err.Error(), fmt.Sprintf("session %d", writer.PgConn().PID())) ||
		!strings.Contains(err.Error(), "a second attempt replaces it") || f.state(waitingIndex) != "invalid" {
		t.Errorf("the index is %s: %v", f.state(waitingIndex), err)
	}
	f.must(tx.Rollback(f.ctx))
	done, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes})
	if err != nil || len(done) != 1 || done[0].Outcome != check.Created || !done[0].Replaced || f.state(waitingIndex) != "valid" {
		t.Errorf("%+v, %v, the index is %s", done, err, f.state(waitingIndex))
	}
}

// Creation continues as soon as the transaction that it waits for has ended.
func TestFixGoesOn(t *testing.T) {
	f := newFixture(t)
	r := f.check(f.dotnet(1000, 0))
	tx, writer := f.insert()
	over := sync.OnceValue(func() error { return tx.Rollback(f.ctx) })
	done, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes, Progress: func(p check.Progress) {
		if p.WaitsFor == int(writer.PgConn().PID()) && p.Index.Name == waitingIndex && p.Phase != "" {
			_ = over()
		}
	}})
	if err != nil || done[0].Outcome != check.Created || f.state(waitingIndex) != "valid" {
		t.Errorf("%+v, %v, the index is %s", done, err, f.state(waitingIndex))
	}
}

// Cancelling also ends it on the server, while it waits.
func TestFixCancelled(t *testing.T) {
	f := newFixture(t)
	r := f.check(f.dotnet(1000, 0))
	tx, _ := f.insert()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	conn := f.connect(f.url)
	_, err := check.Fix(ctx, conn, r, check.FixOptions{Ask: yes, Progress: func(p check.Progress) {
		if p.WaitsFor != 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || conn.IsClosed() {
		t.Errorf("%v; the connection is closed: %v", err, conn.IsClosed())
	}
	if n := f.number("select count(*) from pg_stat_progress_create_index where relid = 'outbox_messages'::regclass"); n != 0 {
		t.Error("the server is still at it")
	}
	f.must(tx.Rollback(f.ctx))
}

// The remains of a failed attempt are dropped and created again. While another session is still
// building the index, it is left alone.
func TestFixAfterFailure(t *testing.T) {
	f := newFixture(t)
	cfg := f.dotnet(1000, 0)
	writer := f.connect(f.url)
	tx, err := writer.Begin(f.ctx)
	f.must(err)
	_, err = tx.Exec(f.ctx, "insert into outbox_messages (id, type, content, occurred_on_utc) values (gen_random_uuid(), 't', '{}', now())")
	f.must(err)
	builder := f.connect(f.url)
	failed := make(chan error, 1)
	go func() {
		_, err := builder.Exec(f.ctx, "create index concurrently "+waitingIndex+" on outbox_messages (occurred_on_utc, id) where processed_on_utc is null")
		failed <- err
	}()
	f.eventually("the index is being created", "select exists (select from pg_stat_progress_create_index where relid = 'outbox_messages'::regclass and index_relid <> 0)")
	r := f.check(cfg)
	if has(r, check.CodeInvalidIndex) {
		t.Errorf("it is being created:\n%s", text(t, r))
	}
	for i := range r.Findings { // as if it had begun after the report
		for j := range r.Findings[i].Fix {
			if s := &r.Findings[i].Fix[j]; s.Creates != nil {
				s.Creates.Name, s.SQL = waitingIndex, strings.Replace(s.SQL, waitingIndex+"2", waitingIndex, 1)
			}
		}
	}
	if _, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes}); err == nil || !strings.Contains(err.Error(), "another session is creating it") {
		t.Errorf("while another session creates it: %v", err)
	}
	f.must(builder.PgConn().CancelRequest(f.ctx))
	if err := <-failed; err == nil {
		t.Fatal("the index was created after all")
	}
	f.must(tx.Rollback(f.ctx))
	if s := f.state(waitingIndex); s != "invalid" {
		t.Fatalf("the index is %s", s)
	}
	r = f.check(cfg)
	find(t, r, check.CodeInvalidIndex)
	find(t, r, check.CodeMissingIndex)
	done, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes})
	if err != nil || len(done) != 1 || done[0].Outcome != check.Created || !done[0].Replaced || f.state(waitingIndex) != "valid" {
		t.Errorf("%+v, %v, the index is %s", done, err, f.state(waitingIndex))
	}
	if r := f.check(cfg); !r.Clean() {
		t.Errorf("after the fix:\n%s", text(t, r))
	}
}

// An index that cannot be created leaves nothing, and the error explains why.
func TestFixFails(t *testing.T) {
	f := newFixture(t)
	f.exec("create table outbox (id bigint not null, ts timestamptz not null, message text)", "create index on outbox (ts, id)",
		"insert into outbox values (1, now(), 'a'), (1, now(), 'b')")
	r := f.check(adopted.Config{Preset: "message"})
	find(t, r, check.CodeNoKey)
	_, err := check.Fix(f.ctx, f.conn, r, check.FixOptions{Ask: yes})
	if err == nil || !strings.Contains(err.Error(), "two rows have the same id") || f.state("outbox_id_key") != "absent" {
		t.Errorf("%v, the index is %s", err, f.state("outbox_id_key"))
	}
}
