package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/mysql"
)

// On plain tables, the verbs of adopted tables work in the same way.
func TestAdoptOnPlainTables(t *testing.T) {
	t.Parallel()
	database := testserver.Database(t, testserver.PostgresURL(t))
	execute(t, database, `create table outbox_messages (id uuid primary key default gen_random_uuid(), type text not null, content jsonb not null,
		occurred_on_utc timestamptz not null default clock_timestamp(), processed_on_utc timestamptz, error text);
		create index on outbox_messages (occurred_on_utc, id) where processed_on_utc is null`)
	adoptsOnPlainTables(t, func(sql string) { execute(t, database, sql) }, "--database-url", database, "--profile", "portable")
}

func TestAdoptInMariaDB(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"innodb", "rocksdb"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at, err := url.Parse(testserver.MariaDBDatabase(t))
			if err != nil {
				t.Fatal(err)
			}
			schema := strings.TrimPrefix(at.Path, "/")
			db, err := mysql.Connect(at.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			execute := func(statement string) {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			var isMariaDB bool
			if err := db.QueryRowContext(t.Context(), "select version() like '%MariaDB%'").Scan(&isMariaDB); err != nil {
				t.Fatal(err)
			}
			if !isMariaDB && engine == "rocksdb" {
				t.Skip("MySQL has no RocksDB")
			}
			execute("create table outbox_messages (id char(36) primary key default (uuid()), type varchar(100) not null, content json not null, occurred_on_utc datetime(6) not null default (utc_timestamp(6)), " +
				"processed_on_utc datetime(6), error text, key waits (processed_on_utc, occurred_on_utc, id)) engine = " + engine)
			at.RawQuery = "engine=" + engine
			adoptsOnPlainTables(t, execute, "--database-url", at.String(), "--schema", schema)
		})
	}
}

func adoptsOnPlainTables(t *testing.T, execute func(sql string), flags ...string) {
	run := func(args ...string) string { return must(t, append(args, flags...)...) }
	run("migrate")
	execute(`insert into outbox_messages (type, content) values ('t', '{"n": 1}'), ('t', '{"n": 2}'), ('t', '{"n": 3}')`)
	status := func() (s statusJSON) {
		if err := json.Unmarshal([]byte(run("status", "mails", "--adopt", "dotnet", "--table", "outbox_messages", "--json")), &s); err != nil || len(s.Adopted) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		return s
	}
	if s := status(); s.Adopted[0].Backlog != 3 {
		t.Errorf("before anybody has read: %+v", s)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- runWith(ctx, cli.New(strings.NewReader(""), &log, &log), append([]string{"relay", "--subscription", "mails", "--adopt", "dotnet", "--table", "outbox_messages", "--sink", "discard"}, flags...))
	}()
	for s := status(); ctx.Err() == nil && (s.Adopted[0].Settled < 3 || s.Adopted[0].Backlog > 0); s = status() {
	}
	stop()
	if code := <-ended; code != terminal.ExitOK || status().Adopted[0].Settled != 3 {
		t.Fatalf("exit code %d: %s", code, log.String())
	}
	contains(t, run("dead", "list", "mails", "--adopt", "dotnet", "--table", "outbox_messages"), "0 dead letters")
	invoke(t, append([]string{"relay", "--adopt", "dotnet", "--workers", "2", "--sink", "discard"}, flags...)...).wants(t, terminal.ExitUsage, "workers is 2")
	invoke(t, append([]string{"adopt", "check", "--preset", "dotnet"}, flags...)...).wants(t, terminal.ExitUsage, "tables are checked in PostgreSQL")
	contains(t, run("subscription", "drop", "mails", "--yes"), "is gone")
	invoke(t, append([]string{"subscription", "drop", "mails", "--yes"}, flags...)...).wants(t, terminal.ExitUsage, `no subscription "mails"`)
}
