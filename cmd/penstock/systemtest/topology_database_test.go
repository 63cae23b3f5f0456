package systemtest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock/internal/test/testserver"
)

// set gives a setting another value in a database.
func set(t testing.TB, database, name, value string) {
	t.Helper()
	execSQL(t, database, fmt.Sprintf("alter database %s set %s = '%s'", texts(t, database, "select quote_ident(current_database())")[0], name, value))
}

// latin1Database is a database whose encoding is LATIN1.
func latin1Database(t testing.TB) string {
	t.Helper()
	server := testserver.StartPostgres(t).URL
	execSQL(t, server, "create database latin1 template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'")
	return strings.Replace(server, "/postgres?", "/latin1?", 1)
}

// The identity of keys and texts does not depend on how the database stores text or talks to
// clients: no two keys become one, and no key stops the others.
func TestTopologyEncodings(t *testing.T) {
	topology(t)
	for _, c := range []struct {
		name     string
		database func(testing.TB) string
		keys     []string
	}{
		{"a LATIN1 database", latin1Database, []string{"Zo\u00eb", "Zo\u00e9", "Zo\u00e8", "Zoe"}},
		{"client_encoding LATIN1", func(t testing.TB) string {
			database := testserver.Database(t, testserver.PostgresURL(t))
			set(t, database, "client_encoding", "LATIN1")
			return database
		}, []string{"Zo\u00eb", "Zo\u00e9", "\u20ac", "\u4e2d\u6587", "plain"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			database := c.database(t)
			for _, args := range [][]string{{"migrate"}, {"outbox", "create", "orders"}, {"queue", "create", "jobs"}} {
				must(t, append(args, "--database-url", database)...)
			}
			inUTF8 := database + "&client_encoding=UTF8" // as an application does, whose libraries know the encoding that they send
			l := newLedger(t, inUTF8, "orders")
			l.keys = c.keys
			broker := testserver.RabbitMQURL(t)
			queue := queueFor(t, broker)
			finish := readThroughInbox(t, l, broker, queue)
			relay := start(t, "relay", "--database-url", database, "--outbox", "orders", "--sink", broker+"?routing_key="+queue)
			l.write("entry", 50*len(c.keys))
			eventually(t, "all has arrived", func() bool { return l.has(fmt.Sprintf("entry-%d", 50*len(c.keys)-1), "rabbitmq") })
			relayed(t, database, "orders")
			relay.signal(syscall.SIGTERM)
			if o := relay.wait(); o.code != 0 {
				t.Errorf("exit code %d: %s", o.code, o.stderr)
			}
			finish()
			l.mustBeSound(inUTF8, "inbox", nil)

			// Jobs of such keys run, and handlers get the key.
			ran := filepath.Join(t.TempDir(), "ran")
			for _, key := range c.keys {
				execWith(t, inUTF8, "select penstock.enqueue('jobs', $1::text, key => $1)", key)
			}
			worker := start(t, "work", "jobs", "--database-url", database, "--exec", `printf '%s\n' "$PENSTOCK_JOB_KEY $(cat)" >> '`+ran+`'`)
			log := &runLog{t: t, path: ran}
			eventually(t, "every job has run", func() bool { return len(log.lines()) >= 2*len(c.keys) })
			worker.signal(syscall.SIGTERM)
			worker.wait()
			for words := range pairs(log.lines()) {
				if words[0] != words[1] {
					t.Errorf("a job of the key %q was run as one of %q", words[1], words[0])
				}
			}
		})
	}
}

// pairs are the elements two by two.
func pairs(words []string) func(func([2]string) bool) {
	return func(yield func([2]string) bool) {
		for i := 0; i+1 < len(words); i += 2 {
			if !yield([2]string{words[i], words[i+1]}) {
				return
			}
		}
	}
}

// execWith runs a statement with parameters.
func execWith(t testing.TB, database, sql string, args ...any) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Settings that change the meaning of a text in SQL, or a client's view, change nothing in the things that
// Penstock creates and does.
func TestTopologySettings(t *testing.T) {
	topology(t)
	settings := map[string]string{
		"backslash_quote":       "off",
		"DateStyle":             "SQL, DMY",
		"IntervalStyle":         "iso_8601",
		"TimeZone":              "Asia/Kathmandu",
		"bytea_output":          "escape",
		"extra_float_digits":    "-5",
		"search_path":           "",
		"quote_all_identifiers": "on",
		"transform_null_equals": "on",
		"array_nulls":           "off",
		"check_function_bodies": "off",
	}
	if len(texts(t, testserver.PostgresURL(t), "select 'may be off' where current_setting('server_version_num')::int < 190000")) == 1 { // PostgreSQL 19 refuses it
		settings["standard_conforming_strings"] = "off"
	}
	for name, value := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testserver.Database(t, testserver.PostgresURL(t))
			set(t, database, name, value)
			for _, args := range [][]string{
				{"migrate"},
				{"outbox", "create", "orders"},
				{"queue", "create", "jobs"},
				{"queue", "create", "last", "--order", "lifo"},
				{"inbox", "create", "billing"},
				{"publish", "orders", "--topic", `a\b`, "--key", `it's`, "--payload", `{"path": "C:\\dir", "it": "'s"}`},
				{"enqueue", "jobs", "--key", `it's a \key`, `{"path": "C:\\dir"}`},
				{"enqueue", "jobs", "--dedup-key", `it's`, "--delay", "1ms", "x"},
				{"status"},
			} {
				must(t, append(args, "--database-url", database)...)
			}
			for _, sql := range []string{
				`select penstock.schedule('jobs', 'it''s', '0 4 * * 1-5', 'x')`,
				`select penstock.inbox('billing', 'it''s')`,
			} {
				execWith(t, database, sql)
			}
			relay := start(t, "relay", "--database-url", database, "--outbox", "orders", "--sink", "stdout")
			relay.await("the message", func() bool { return strings.Contains(relay.stdout.String(), `C:\\`) })
			relay.signal(syscall.SIGTERM)
			if o := relay.wait(); o.code != 0 || !strings.Contains(o.stdout, `it's`) || !strings.Contains(o.stdout, `a\\b`) {
				t.Errorf("exit code %d, stdout %s", o.code, o.stdout)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			worker := start(t, "work", "jobs", "--database-url", database, "--exec", `printf '%s\n' "$PENSTOCK_JOB_KEY $(cat)" >> '`+ran+`'`)
			log := &runLog{t: t, path: ran}
			eventually(t, "both jobs have run", func() bool { return len(log.lines()) >= 6 })
			worker.signal(syscall.SIGTERM)
			worker.wait()
			if text := strings.Join(log.lines(), " "); !strings.Contains(text, `it's a \key {"path": "C:\\dir"}`) {
				t.Errorf("the jobs were run as %q", text)
			}
		})
	}
}
