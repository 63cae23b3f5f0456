package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// A subscription whose sink is a queue fills it, and stops on request.
func TestRelayIntoAQueue(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { relayIntoAQueue(t, urlDesk(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"))) })
	t.Run("postgres", func(t *testing.T) { relayIntoAQueue(t, urlDesk(t, postgrestest.Database(t))) })
}

func relayIntoAQueue(t *testing.T, d *desk) {
	d.outbox("orders", numbered(30)...)
	d.must("queue", "create", "emails")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan outcome, 1)
	go func() { ended <- d.runIn(ctx, false, "", "relay", "--outbox", "orders", "--sink", "queue:emails") }()
	for ready := 0; ready < 30; {
		var s statusJSON
		if err := json.Unmarshal([]byte(d.must("status", "emails", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		ready = int(s.Queues[0].Ready)
		if t.Context().Err() != nil {
			t.Fatal("the queue does not fill")
		}
	}
	stop()
	if o := <-ended; o.code != terminal.ExitOK {
		t.Errorf("exit code %d: %s", o.code, o.stderr)
	}
	var s statusJSON
	if err := json.Unmarshal([]byte(d.must("status", "--json")), &s); err != nil || s.Outboxes[0].Subscriptions[0].Backlog != 0 || s.Queues[0].Ready != 30 {
		t.Errorf("%+v, %v", s, err)
	}

	d.cli("relay", "--outbox", "orders", "--sink", "queue:nothing", "--log-level", "error").wants(t, terminal.ExitFailure, `subscription "default": queue "nothing": no such queue: penstock queue list`)
	d.cli("relay", "--outbox", "nothing", "--sink", "queue:emails", "--log-level", "error").wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox: penstock outbox list`)
	d.cli("relay", "--outbox", "orders", "--sink", "queue:emails", "--topic", "a").wants(t, terminal.ExitUsage, "--topic has no meaning with a queue as the sink")
}

func TestNotEveryStoreForwards(t *testing.T) {
	t.Parallel()
	d := bareDesk(t)
	d.outbox("orders")
	d.cli("relay", "--outbox", "orders", "--sink", "queue:emails", "--log-level", "error").wants(t, terminal.ExitUsage, "is for PostgreSQL and SQLite")
}

func TestRelayFlagsThatAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "penstock.yaml", "database_url: sqlite:x.db\nsubscriptions:\n  - {name: a, outbox: o, sink: discard}\n")
	for args, want := range map[string]string{
		"--topic a>b":                           "wildcard inside a word",
		"--topic >.a":                           "with > before the end",
		"--header region":                       "write NAME=VALUE",
		"--header =eu":                          "has an empty name",
		"--header region=eu --header region=us": "a header has one value",
		"--max-attempts 0":                      "write a whole number from 1, or unlimited",
		"--max-attempts many":                   "write a whole number from 1, or unlimited",
		"--max-age soon":                        "or unlimited",
		"--on-dead ignore":                      "continue or hold",
		"--lease 0s":                            "--lease is 0",
		"--lease -3s":                           "use a number with",
		"--format avro":                         "--format: kind is \"avro\": write raw, cloudevents or debezium",
		"--format cloudevents?prefix=ce_":       "--format: prefix is \"ce_\"",
	} {
		invoke(t, append([]string{"relay", "--outbox", "o", "--sink", "discard"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
	}
	for _, args := range []string{"--topic a", "--header a=b", "--max-attempts 3", "--max-age 1h", "--on-dead hold", "--lease 3s", "--start now", "--format raw", "--previous", "--table t", "--workers 2"} {
		invoke(t, append([]string{"relay"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, "goes with --outbox or --adopt, and --sink: with a configuration file, write it there")
	}
}

// The log reports once that a process starts, and once that it has the lease.
func TestRelayLogsItsStartOnce(t *testing.T) {
	t.Parallel()
	url := sqliteFile(t)
	d := urlDesk(t, url)
	d.outbox("orders", numbered(3)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := &notifyingBuffer{wait: "took the lease", found: cancel}
	a := d.app(strings.NewReader(""), io.Discard, log)
	a.Getenv = func(string) string { return "" }
	if code := runWith(ctx, a, []string{"relay", "--database-url", url, "--outbox", "orders", "--sink", "discard", "--topic", "t", "--console-listen", "127.0.0.1:0"}); code != terminal.ExitOK {
		t.Errorf("exit code %d", code)
	}
	place := "database=" + strings.TrimPrefix(url, "sqlite:") + " "
	for _, line := range []string{"msg=relaying " + place, "/ " + place + "pid=", "took the lease", "msg=stopped"} {
		if n := bytes.Count(log.written.Bytes(), []byte(line)); n != 1 {
			t.Errorf("%s is there %d times in %s", line, n, log.written.String())
		}
	}
}

func TestAdoptFlagsThatAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"--adopt dotnet": "--adopt is given without --sink",
		"--adopt dotnet --outbox o --sink discard":                 "--outbox and --adopt are both given",
		"--outbox o --table t --sink discard":                      "--table goes with --adopt",
		"--outbox o --workers 2 --sink discard":                    "--workers goes with --adopt",
		"--adopt java --sink discard":                              `--adopt: preset is "java": choose one of debezium`,
		"--adopt dotnet --table a.b.c --sink discard":              "--adopt: table has 3 parts",
		"--adopt dotnet --workers 99 --sink discard":               "--adopt: workers is 99",
		"--adopt dotnet --workers -1 --sink discard":               "--adopt: workers is -1",
		"--adopt dotnet --start now --sink discard":                "--start is now for an adopted table, whose rows say",
		"--adopt dotnet --sink queue:emails":                       "only an outbox is forwarded",
		"--adopt dotnet --sink discard --previous --workers 2":     "--previous is true, but several workers read the table",
		"--adopt dotnet --sink discard --database-url sqlite:a.db": "--adopt is for tables in PostgreSQL and MariaDB, and the database is SQLite",
	} {
		invoke(t, append([]string{"relay"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
	}
}
