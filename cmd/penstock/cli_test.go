package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testserver"
)

// outcome is the result of running the command line.
type outcome struct {
	stdout, stderr string
	code           int
}

// invoke runs the command line with nothing on stdin.
func invoke(t *testing.T, args ...string) outcome {
	t.Helper()
	return invokeWith(t, "", args...)
}

func invokeWith(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	o := outcome{stdout.String(), stderr.String(), code}
	if strings.Contains(o.stderr, "goroutine ") || strings.Contains(o.stderr, "panic") {
		t.Errorf("penstock %q shows its insides: %s", args, o.stderr)
	}
	return o
}

// must runs the command line and requires that it succeeds.
func must(t *testing.T, args ...string) string {
	t.Helper()
	o := invoke(t, args...)
	if o.code != terminal.ExitOK {
		t.Fatalf("penstock %q: exit code %d: %s", args, o.code, o.stderr)
	}
	return o.stdout
}

// wants checks the exit code and that stderr is one line with the text.
func (o outcome) wants(t *testing.T, code int, text string) {
	t.Helper()
	if o.code != code || !strings.Contains(o.stderr, text) {
		t.Errorf("exit code %d, stderr %q; want %d and %q", o.code, o.stderr, code, text)
	}
	if code != terminal.ExitOK && (!strings.HasPrefix(o.stderr, "penstock: ") || strings.Count(o.stderr, "\n") != 1) {
		t.Errorf("stderr is %q, want one line that begins with penstock:", o.stderr)
	}
}

// sqliteDatabase is a migrated database of one test, in an empty directory, which becomes the
// current one.
func sqliteDatabase(t *testing.T) (url string) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("PENSTOCK_DATABASE_URL", "")
	url = "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	must(t, "migrate", "--database-url", url)
	return url
}

func TestMigrateTellsTheVersions(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, url := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "test.db"),
		"postgres": testserver.Database(t, testserver.PostgresURL(t)),
	} {
		t.Run(name, func(t *testing.T) {
			var first, again struct{ From, To int64 }
			for _, told := range []any{&first, &again} {
				if err := json.Unmarshal([]byte(must(t, "migrate", "--json", "--database-url", url)), told); err != nil {
					t.Fatal(err)
				}
			}
			if first.From != 0 || first.To < 1 || again.From != first.To || again.To != first.To {
				t.Errorf("the first told %+v, the second %+v", first, again)
			}
			contains(t, must(t, "migrate", "--database-url", url), fmt.Sprintf("up to date already (version %d)", first.To))
		})
	}
}

func TestMigrateSaysWhatItDid(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, url := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "test.db"),
		"postgres": testserver.Database(t, testserver.PostgresURL(t)),
	} {
		t.Run(name, func(t *testing.T) {
			contains(t, must(t, "migrate", "--database-url", url), "were created (version ", "penstock outbox create")
		})
	}
}

// migrate --check reports the changes of migrate, and changes nothing.
func TestMigrateCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, url := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "test.db"),
		"postgres": testserver.Database(t, testserver.PostgresURL(t)),
	} {
		t.Run(name, func(t *testing.T) {
			o := invoke(t, "migrate", "--check", "--database-url", url)
			o.wants(t, terminal.ExitCheck, "penstock migrate --database-url")
			contains(t, o.stdout, "the database is not migrated")
			contains(t, must(t, "migrate", "--database-url", url), "were created")
			contains(t, must(t, "migrate", "--check", "--database-url", url), "are those of this program")
			contains(t, must(t, "migrate", "--check", "--json", "--database-url", url), `"differences":[]`, `"version":`)
		})
	}
}

// A function that was changed by hand is reported by --check, and by workers and relays when they
// start.
func TestMigrateCheckNamesFunctions(t *testing.T) {
	t.Chdir(t.TempDir())
	db := postgrestest.New(t)
	db.Exec("select penstock.create_queue('mails'), penstock.create_queue('other'), penstock.create_outbox('orders')")
	db.Exec(`alter function penstock."_mails.ack"(bigint[]) set work_mem = '64MB'; drop function penstock.dequeue_other()`, pgx.QueryExecModeSimpleProtocol)
	var found struct{ Differences []string }
	o := invoke(t, "migrate", "--check", "--json", "--database-url", db.URL)
	o.wants(t, terminal.ExitCheck, "2 differences were found: run: penstock migrate")
	if err := json.Unmarshal([]byte(o.stdout), &found); err != nil || len(found.Differences) != 2 {
		t.Fatalf("%v, %q", err, o.stdout)
	}
	contains(t, invoke(t, "migrate", "--check", "--database-url", db.URL).stdout, "the function _mails.ack(_int8) was changed\nthe function dequeue_other() is missing\n")

	db.Exec("alter function penstock._q(text) set work_mem = '64MB'")
	for name, f := range map[string]struct {
		args          []string
		warns, silent string
	}{
		"work":  {[]string{"work", "mails", "--exec", "true"}, "_mails.ack(_int8) was changed", "dequeue_other"},
		"relay": {[]string{"relay", "--outbox", "orders", "--sink", "discard"}, "_q(text) was changed", "_mails.ack"},
	} {
		ctx, stop := context.WithTimeout(t.Context(), postgrestest.Deadline)
		log := &stopAt{text: "run penstock migrate", stop: stop}
		run(ctx, append(f.args, "--database-url", db.URL), strings.NewReader(""), io.Discard, log)
		stop()
		contains(t, log.String(), "level=WARN", f.warns)
		if strings.Contains(log.String(), f.silent) {
			t.Errorf("%s: what it does not need is looked at: %s", name, log)
		}
	}
	contains(t, must(t, "migrate", "--database-url", db.URL), "up to date already (version ", "), and 3 differences were repaired.\n")
	contains(t, must(t, "migrate", "--check", "--database-url", db.URL), "are those of this program")
	contains(t, must(t, "migrate", "--json", "--database-url", db.URL), `"repaired":[]`)
	db.Exec("drop function penstock.dequeue_other()")
	contains(t, must(t, "migrate", "--json", "--database-url", db.URL), `"repaired":["the function dequeue_other() is missing"]`)
}

// A worker on tables of another version calls the existing functions and warns. A relay is refused.
func TestWorkWarnsOfTablesOfAnotherVersion(t *testing.T) {
	db := postgrestest.New(t)
	db.Exec("select penstock.create_queue('mails'), penstock.create_outbox('orders')")
	db.Exec("insert into penstock._migration (version_id, is_applied) select max(version_id) + 1, true from penstock._migration")
	ctx, stop := context.WithTimeout(t.Context(), postgrestest.Deadline)
	defer stop()
	log := &stopAt{text: "by a newer version of penstock", stop: stop}
	run(ctx, []string{"work", "mails", "--exec", "true", "--database-url", db.URL}, strings.NewReader(""), io.Discard, log)
	contains(t, log.String(), "level=WARN", "the database's tables are not those of this program")
	invoke(t, "relay", "--outbox", "orders", "--sink", "discard", "--log-level", "error", "--database-url", db.URL).wants(t, terminal.ExitDatabase, "by a newer version of penstock")
}

// stopAt is a log that calls stop once it has the text.
type stopAt struct {
	bytes.Buffer
	text string
	stop func()
}

func (s *stopAt) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.text) {
		s.stop()
	}
	return n, err
}

// SQL for other tools needs no database, and is for the given schema.
func TestMigrateSQL(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PENSTOCK_DATABASE_URL", "")
	contains(t, must(t, "migrate", "--sql"), `create schema "penstock";`, "this leads on from version 0")
	contains(t, must(t, "migrate", "--sql", "--from", "300", "--schema", "my jobs"), `"my jobs"`, "this leads on from version 300")
	contains(t, must(t, "migrate", "--sql", "--database-url", "postgres://nobody@127.0.0.1:1/none"), `create schema "penstock";`)
	invoke(t, "migrate", "--sql", "--from", "7").wants(t, terminal.ExitUsage, "7 is not a version")
	invoke(t, "migrate", "--sql", "--database-url", "sqlite:x.db").wants(t, terminal.ExitUsage, "this database is SQLite")
	invoke(t, "migrate", "--sql", "--json").wants(t, terminal.ExitUsage, "given with --json or --check")
	invoke(t, "migrate", "--from", "300").wants(t, terminal.ExitUsage, "--from goes with --sql")
}

func TestOutboxLifecycle(t *testing.T) {
	url := sqliteDatabase(t)
	db := []string{"--database-url", url}
	with := func(args ...string) []string { return append(args, db...) }

	for _, name := range []string{"orders", `we"ird; drop table x`, "größe"} {
		must(t, with("outbox", "create", name)...)
	}
	invoke(t, with("outbox", "create", "orders")...).wants(t, terminal.ExitFailure, "exists already")
	must(t, with("outbox", "create", "orders", "--if-missing")...)
	invoke(t, with("outbox", "create", "")...).wants(t, terminal.ExitUsage, "outbox")
	invoke(t, with("outbox", "create", strings.Repeat("x", 49))...).wants(t, terminal.ExitUsage, "outbox")

	var names []string
	if err := json.Unmarshal([]byte(must(t, with("outbox", "list", "--json")...)), &names); err != nil || len(names) != 3 {
		t.Errorf("got %q, %v", names, err)
	}
	invoke(t, with("outbox", "drop", "orders")...).wants(t, terminal.ExitUsage, "pass --yes if you mean it")
	invoke(t, with("outbox", "drop", "nothing", "--yes")...).wants(t, terminal.ExitFailure, "no such outbox")
	must(t, with("outbox", "drop", "orders", "--yes")...)
	same(t, "json", must(t, with("outbox", "create", "orders", "--json")...)+must(t, with("outbox", "drop", "orders", "--yes", "--json")...),
		`{"outbox":"orders"}`+"\n"+`{"backlog":0,"dead_letters":0,"outbox":"orders","parked":0}`+"\n")
	if out := must(t, with("outbox", "list")...); strings.Contains(out, "orders") {
		t.Errorf("orders is still there: %q", out)
	}
	invoke(t, with("status", "orders")...).wants(t, terminal.ExitFailure, "no such outbox")
	if out := must(t, with("status")...); !strings.Contains(out, "größe") || !strings.Contains(out, "(none)") {
		t.Errorf("status is %q", out)
	}
	var status struct{ Outboxes []map[string]any }
	if err := json.Unmarshal([]byte(must(t, with("status", "--json")...)), &status); err != nil || len(status.Outboxes) != 2 {
		t.Errorf("got %v, %v", status, err)
	}
}

func TestStatusOfAnEmptyDatabase(t *testing.T) {
	url := sqliteDatabase(t)
	if out := must(t, "status", "--database-url", url); !strings.Contains(out, "outbox create") {
		t.Errorf("got %q", out)
	}
	if out := must(t, "status", "--json", "--database-url", url); out != "{\"outboxes\":[],\"queues\":[]}\n" {
		t.Errorf("got %q", out)
	}
	if out := must(t, "outbox", "list", "--json", "--database-url", url); out != "[]\n" {
		t.Errorf("got %q", out)
	}
}

func TestNotMigrated(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, verb := range []string{"status", "outbox list", "outbox create o", "publish o --topic t", "tail o", "relay --outbox o --sink discard --log-level error",
		"dead list o", "dead show o i --subscription s", "dead retry o i", "dead discard o i --subscription s", "parked o", "parked o --subscription s",
		"queue create q", "queue list", "queue set q --max-attempts 2", "queue pause q", "queue drop q --yes", "enqueue q x", "work q --exec true",
		"job cancel q 1", "schedule set q n --cron @daily", "schedule list q", "schedule drop q n", "schedule pause q n", "schedule resume q n", "schedule run q n", "replay o --from 1 --yes", "outbox set o --retain-age 1h", "subscription drop o s --yes"} {
		t.Run(verb, func(t *testing.T) {
			args := append(strings.Fields(verb), "--database-url", "sqlite:not.db")
			invoke(t, args...).wants(t, terminal.ExitDatabase, "penstock migrate")
		})
	}
}

func TestPublishAndTail(t *testing.T) {
	url := sqliteDatabase(t)
	must(t, "outbox", "create", "orders", "--database-url", url)
	write(t, "payload.bin", "\x00\xff")
	must(t, "publish", "orders", "--database-url", url, "--topic", "order.paid", "--key", "42", "--id", "id-1",
		"-H", "traceparent=00-ab", "-H", "eq=a=b", "--payload", `{"total":10}`)
	must(t, "publish", "orders", "--database-url", url, "--topic", "bytes", "--payload-file", "payload.bin")
	if o := invokeWith(t, "from stdin", "publish", "orders", "--database-url", url, "--payload-file", "-"); o.code != terminal.ExitOK {
		t.Fatal(o.stderr)
	}
	invoke(t, "publish", "nothing", "--topic", "t", "--database-url", url).wants(t, terminal.ExitFailure, "no such outbox")
	invoke(t, "publish", "orders", "--key", "a\x00b", "--database-url", url).wants(t, terminal.ExitUsage, "key has a NUL at byte 1")
	invoke(t, "publish", "orders", "--topic", "a\xff", "--database-url", url).wants(t, terminal.ExitUsage, "topic is not valid UTF-8")
	invoke(t, "publish", "orders", "-H", "h=\x00", "--database-url", url).wants(t, terminal.ExitUsage, `headers["h"] has a NUL`)

	text := must(t, "tail", "orders", "--database-url", url)
	for _, want := range []string{"order.paid  key=42  eq=a=b  traceparent=00-ab  {\"total\":10}\n", "bytes  (2 bytes that are not text)\n", "from stdin\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("tail says %q, want %q in it", text, want)
		}
	}
	if one := must(t, "tail", "orders", "-n", "1", "--database-url", url); strings.Count(one, "\n") != 1 {
		t.Errorf("one message is %q", one)
	}

	// publish accepts the output of tail.
	lines := must(t, "tail", "orders", "--json", "--database-url", url)
	must(t, "outbox", "create", "copy", "--database-url", url)
	if o := invokeWith(t, lines, "publish", "copy", "--json", "--database-url", url); o.code != terminal.ExitOK || !strings.Contains(o.stdout, `"published":3`) {
		t.Fatalf("%q, %q", o.stdout, o.stderr)
	}
	if again := must(t, "tail", "copy", "--database-url", url); len(again) != len(text) {
		t.Errorf("the copy is %q, the original %q", again, text)
	}
}

func TestTailFollowEndsWithTheContext(t *testing.T) {
	url := sqliteDatabase(t)
	must(t, "outbox", "create", "orders", "--database-url", url)
	must(t, "publish", "orders", "--topic", "first", "--database-url", url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &notifyingBuffer{wait: "first", found: cancel}
	var stderr bytes.Buffer
	code := run(ctx, []string{"tail", "orders", "--follow", "--database-url", url}, strings.NewReader(""), out, &stderr)
	if code != terminal.ExitOK {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

// notifyingBuffer calls found when the text was written.
type notifyingBuffer struct {
	written bytes.Buffer
	wait    string
	found   func()
}

func (b *notifyingBuffer) Write(p []byte) (int, error) {
	n, err := b.written.Write(p)
	if strings.Contains(b.written.String(), b.wait) {
		b.found()
	}
	return n, err
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	t.Chdir(t.TempDir())
	const secret = "s3cr3t-w0rd"
	for _, args := range [][]string{
		{"status", "--database-url", "postgres://app:" + secret + "@127.0.0.1:1/shop"},
		{"status", "--database-url", "postgres://app:" + secret + "@127.0.0.1:port/shop"},
		{"status", "--database-url", "postgres://app:" + secret + "@[127.0.0.1/shop"},
		{"status", "--database-url", "postgres://app@127.0.0.1:1/shop?password=" + secret},
		{"status", "--database-url", "postgres://app:" + secret + "@127.0.0.1:1/shop?sslmode=nonsense"},
		{"status", "--database-url", "mysql://app:" + secret + "@127.0.0.1/shop"},
		{"demo", "--limit", "1", "--database-url", "postgres://app:" + secret + "@127.0.0.1:1/shop"},
		{"demo", "--limit", "1", "--sink", "amqp://app:" + secret + "@127.0.0.1:1/"},
		{"demo", "--limit", "1", "--sink", "nats://app:" + secret + "@127.0.0.1:1"},
		{"demo", "--limit", "1", "--sink", "nats://app:" + secret + "@127.0.0.1:port"},
		{"relay", "--outbox", "o", "--database-url", "sqlite:x.db", "--sink", "amqp://app:" + secret + "@127.0.0.1:port/"},
		{"relay", "--outbox", "o", "--database-url", "sqlite:x.db", "--sink", "kafka://app:" + secret + "@127.0.0.1/"},
		{"demo", "--limit", "1", "--sink", "redis://app:" + secret + "@127.0.0.1:1"},
	} {
		o := invoke(t, args...)
		if o.code == terminal.ExitOK || strings.Contains(o.stdout+o.stderr, secret) {
			t.Errorf("penstock %q: exit code %d, %q %q", args, o.code, o.stdout, o.stderr)
		}
	}
}

func TestScrubber(t *testing.T) {
	var out bytes.Buffer
	s := terminal.NewScrubber(&out)
	s.Hide("postgres://app:p%40ss@localhost/shop?password=other")
	line := "cannot use postgres://app:p%40ss@localhost with :p@ss@ and password=other, pass\n"
	if n, err := s.Write([]byte(line)); n != len(line) || err != nil {
		t.Errorf("Write returned %d, %v", n, err)
	}
	if want := "cannot use postgres://app:xxxxx@localhost with :xxxxx@ and password=xxxxx, pass\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestSummaryOnFailureTellsWhatWasPublished(t *testing.T) {
	url := sqliteDatabase(t)
	must(t, "outbox", "create", "o", "--database-url", url)
	o := invokeWith(t, "{\"topic\":\"a\"}\n{\"topic\":\"b\"}\nbad\n", "publish", "o", "--batch", "1", "--json", "--database-url", url)
	o.wants(t, terminal.ExitUsage, "line 3: is not a message")
	var summary struct{ Published int }
	if err := json.Unmarshal([]byte(o.stdout), &summary); err != nil || summary.Published != 2 {
		t.Errorf("summary is %q, %v", o.stdout, err)
	}
}
