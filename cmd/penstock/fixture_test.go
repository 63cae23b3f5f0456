package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/drivers"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/sqlitetest"
	"github.com/penstock/penstock/internal/test/storetest"
)

// desk is a command line with a store that the test can inspect.
type desk struct {
	t     *testing.T
	store driver.Database
	// open returns a replacement of the store for the command line; nil means another handle on it.
	open func() driver.Database
}

// eachStore runs a test over every store.
func eachStore(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Run("sqlite", func(t *testing.T) { test(t, urlDesk(t, sqliteFile(t))) })
	t.Run("postgres", func(t *testing.T) { test(t, urlDesk(t, postgrestest.Database(t))) })
}

// sqliteFile is the URL of a database that does not exist yet.
func sqliteFile(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "test.db") }

// yaml is a configuration file.
func yaml(t *testing.T, content string) (file string) {
	file = filepath.Join(t.TempDir(), "penstock.yaml")
	write(t, file, content)
	return file
}

func urlDesk(t *testing.T, url string) *desk {
	open := func() driver.Database {
		store, err := drivers.OpenStore(t.Context(), url, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	return newDesk(t, open(), open)
}

// bare is a store with only the methods that every store has.
type bare struct{ driver.Database }

func (bare) Close() error { return nil } // each verb does it

func bareDesk(t *testing.T) *desk {
	store := bare{sqlitetest.New(t)}
	return newDesk(t, store, func() driver.Database { return store })
}

func newDesk(t *testing.T, store driver.Database, open func() driver.Database) *desk {
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &desk{t: t, store: store, open: open}
}

// cli runs the command line without a user who could answer.
func (d *desk) cli(args ...string) outcome { return d.run(false, "", args...) }

// asked runs it on a terminal with a user who answers.
func (d *desk) asked(answer string, args ...string) outcome { return d.run(true, answer, args...) }

func (d *desk) run(interactive bool, answer string, args ...string) outcome {
	d.t.Helper()
	return d.runIn(d.t.Context(), interactive, answer, args...)
}

func (d *desk) runIn(ctx context.Context, interactive bool, answer string, args ...string) outcome {
	d.t.Helper()
	var stdout, stderr bytes.Buffer
	a := d.app(strings.NewReader(answer), &stdout, &stderr)
	a.Interactive = interactive
	code := runWith(ctx, a, args)
	return outcome{stdout.String(), stderr.String(), code}
}

// app is a command line whose database is the desk's.
func (d *desk) app(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	a := cli.New(stdin, stdout, stderr)
	a.Getenv = func(string) string { return "sqlite:replaced.db" }
	a.Open = func(context.Context, string, string, *slog.Logger) (driver.Database, error) { return d.open(), nil }
	return a
}

// must runs the command line and requires that it succeeds.
func (d *desk) must(args ...string) string {
	d.t.Helper()
	o := d.cli(args...)
	if o.code != terminal.ExitOK {
		d.t.Fatalf("penstock %q: exit code %d: %s", args, o.code, o.stderr)
	}
	return o.stdout
}

// outbox creates an outbox and publishes to it.
func (d *desk) outbox(name string, msgs ...penstock.Message) {
	d.t.Helper()
	if err := d.store.CreateOutbox(d.t.Context(), name); err != nil {
		d.t.Fatal(err)
	}
	if err := d.store.Publish(d.t.Context(), name, msgs...); err != nil {
		d.t.Fatal(err)
	}
}

// relay settles everything that a subscription has not settled, with the given verdicts, and
// leaves the lease.
func (d *desk) relay(outbox, subscription string, verdict func(penstock.Message) driver.Verdict) (seen []penstock.Message) {
	d.t.Helper()
	ctx := d.t.Context()
	source, err := d.store.Subscribe(ctx, driver.Subscribe{Outbox: outbox, Subscription: subscription, Holder: "test"})
	if err != nil {
		d.t.Fatal(err)
	}
	defer source.Close(ctx)
	for {
		batch, err := source.Fetch(ctx, driver.Limit{Messages: 100, Bytes: 1 << 20})
		if err != nil {
			d.t.Fatal(err)
		}
		if len(batch.Messages) == 0 && !batch.More {
			return seen
		}
		settled := driver.Settled{Batch: batch}
		for i := range batch.Messages {
			seen = append(seen, batch.Messages[i])
			settled.Verdicts = append(settled.Verdicts, verdict(batch.Messages[i]))
		}
		if err := storetest.Settle(ctx, source, settled); err != nil {
			d.t.Fatal(err)
		}
	}
}

// deliver is the verdict delivered for every message.
func deliver(penstock.Message) driver.Verdict { return driver.Verdict{} }

// dies is the verdict dead, for the reason in the message's headers.
func dies(m penstock.Message) driver.Verdict {
	reason := m.Headers["reason"]
	if reason == "" {
		reason = "refused"
	}
	return driver.Verdict{Outcome: driver.Dead, Failures: []penstock.Failure{{Attempt: m.Attempt, At: time.Now(), Err: reason}}}
}

// dead lists the ids of a subscription's dead letters.
func (d *desk) dead(outbox, subscription string) string {
	d.t.Helper()
	found, err := d.store.DeadLetters(d.t.Context(), admin.DeadLetterQuery{Outbox: outbox, Subscription: subscription})
	if err != nil {
		d.t.Fatal(err)
	}
	var ids []string
	for i := range found {
		ids = append(ids, found[i].Message.ID)
	}
	return strings.Join(ids, " ")
}

// numbered returns messages with the ids m1, m2 and so on, each with its own key.
func numbered(n int) []penstock.Message {
	msgs := make([]penstock.Message, n)
	for i := range msgs {
		msgs[i] = penstock.Message{ID: fmt.Sprintf("m%d", i+1), Key: fmt.Sprintf("k%d", i+1), Topic: "t", Payload: []byte("p")}
	}
	return msgs
}

// same fails the test unless got is want.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// contains fails the test unless every part is in text.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

// write creates a file.
func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
