package check_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/cmd/penstock/internal/check"
	"github.com/penstock/penstock/internal/adopted"
	"github.com/penstock/penstock/internal/test/testserver"
)

const deadline = 10 * time.Minute

// fixture is a database of one test.
type fixture struct {
	*testing.T
	ctx  context.Context
	url  string
	conn *pgx.Conn
}

func newFixture(t *testing.T) *fixture { return fixtureOn(t, testserver.PostgresURL(t)) }

func fixtureOn(t *testing.T, server string) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*deadline)
	t.Cleanup(cancel)
	f := &fixture{T: t, ctx: ctx, url: testserver.Database(t, server)}
	f.conn = f.connect(f.url)
	return f
}

// in is the fixture for a subtest.
func (f *fixture) in(t *testing.T) *fixture {
	g := *f
	g.T = t
	return &g
}

func (f *fixture) connect(url string) *pgx.Conn {
	f.Helper()
	conn, err := pgx.Connect(f.ctx, url)
	f.must(err)
	f.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// as connects as a role without a password.
func (f *fixture) as(role string) *pgx.Conn {
	f.Helper()
	u, err := url.Parse(f.url)
	f.must(err)
	u.User = url.User(role)
	return f.connect(u.String())
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// exec runs each statement separately.
func (f *fixture) exec(statements ...string) {
	f.Helper()
	for _, sql := range statements {
		if strings.HasPrefix(sql, "vacuum") {
			// A session counts its rows up to a second later (PGSTAT_MIN_INTERVAL). That may be after the
			// vacuum that removed them, and they would stay counted as dead. Version 14 has no such function.
			f.exec("do $$ begin perform pg_stat_force_next_flush(); exception when undefined_function then null; end $$")
		}
		if _, err := f.conn.Exec(f.ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			f.Fatalf("%s: %v", sql, err)
		}
	}
}

func (f *fixture) number(sql string, args ...any) (n int64) {
	f.Helper()
	if err := f.conn.QueryRow(f.ctx, sql, args...).Scan(&n); err != nil {
		f.Fatalf("%s: %v", sql, err)
	}
	return n
}

// eventually waits for effects of the server's background work.
func (f *fixture) eventually(what, sql string) {
	f.Helper()
	for end := time.Now().Add(deadline); f.number("select case when ("+sql+") then 1 else 0 end") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("it never came to be that %s", what)
		}
	}
}

// pin opens a transaction in a separate session whose snapshot keeps every dead row from now on.
func (f *fixture) pin() pgx.Tx {
	f.Helper()
	tx, err := f.connect(f.url).BeginTx(f.ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	f.must(err)
	_, err = tx.Exec(f.ctx, "select 1")
	f.must(err)
	return tx
}

func (f *fixture) check(cfg adopted.Config) check.Report {
	f.Helper()
	return f.checkWith(f.conn, cfg, check.Options{})
}

func (f *fixture) checkWith(conn *pgx.Conn, cfg adopted.Config, opts check.Options) check.Report {
	f.Helper()
	cfg.SetDefaults()
	if opts.Timeout == 0 {
		opts.Timeout = deadline
	}
	r, err := check.Run(f.ctx, conn, cfg, opts)
	f.must(err)
	return r
}

// find is the finding of the code, which must be in the report.
func find(t testing.TB, r check.Report, code string) check.Finding {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(f check.Finding) bool { return f.Code == code })
	if i < 0 {
		t.Fatalf("%s was not found:\n%s", code, text(t, r))
	}
	return r.Findings[i]
}

// has reports whether there is a finding of the code.
func has(r check.Report, code string) bool {
	return slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.Code == code })
}

func codes(r check.Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Code)
	}
	return strings.Join(all, " ")
}

func text(t testing.TB, r check.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// same fails unless two texts are equal.
func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

// dotnet is the published table, with a number of rows of which the first are processed.
func (f *fixture) dotnet(rows, processed int) adopted.Config {
	f.Helper()
	f.exec(`create table outbox_messages (id uuid primary key, type text not null, content jsonb not null,
		occurred_on_utc timestamptz not null, processed_on_utc timestamptz null, error text null)`)
	_, err := f.conn.Exec(f.ctx, `insert into outbox_messages
		select gen_random_uuid(), 'OrderPlaced', jsonb_build_object('order', i, 'customer', md5(i::text), 'lines', i % 7),
		       now() - make_interval(secs => ($1 - i) * 0.01), case when i <= $2 then now() end, null
		  from generate_series(1, $1::int) i`, rows, processed)
	f.must(err)
	f.exec("vacuum analyze outbox_messages")
	return adopted.Config{Preset: "dotnet"}
}

// events is the published table, with a number of rows.
func (f *fixture) events(rows int) adopted.Config {
	f.Helper()
	f.exec("create table events (id int primary key, ts timestamp, data text)",
		"create index on events (ts asc)")
	_, err := f.conn.Exec(f.ctx, `insert into events select i, now()::timestamp - make_interval(secs => $1 - i), md5(i::text) from generate_series(1, $1::int) i`, rows)
	f.must(err)
	f.exec("vacuum analyze events")
	return adopted.Config{Preset: "events"}
}

// healthy is a table as it should be: most rows were delivered, and some wait.
func (f *fixture) healthy() adopted.Config {
	f.Helper()
	f.exec(`create table outbox (id bigint generated always as identity primary key, at timestamptz not null default now(),
			key text, topic text, payload jsonb, done_at timestamptz, attempts int not null default 0)`,
		`insert into outbox (key, topic, payload, at, done_at)
			select i % 10, 'orders', jsonb_build_object('n', i), now() - make_interval(secs => 5000 - i), case when i <= 4000 then now() end
			  from generate_series(1, 5000) i`,
		"create index outbox_waiting_idx on outbox (at, id) where done_at is null",
		"vacuum analyze outbox")
	return adopted.Config{Table: "outbox", Columns: adopted.Columns{ID: "id", Order: []string{"at"}, Key: "key", Topic: "topic",
		Payload: "payload", ProcessedAt: "done_at", Attempts: "attempts"}}
}
