package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/testseed"
)

// published are the payloads in an outbox, in order.
func (d *desk) published(outbox string) string {
	d.t.Helper()
	src, err := d.store.Subscribe(d.t.Context(), driver.Subscribe{Outbox: outbox, Subscription: "look", Holder: "test"})
	if err != nil {
		d.t.Fatal(err)
	}
	b, err := src.Fetch(d.t.Context(), driver.Limit{Messages: 1000, Bytes: 16 << 20})
	if err := errors.Join(err, src.Close(d.t.Context())); err != nil {
		d.t.Fatal(err)
	}
	var all []string
	for _, m := range b.Messages {
		all = append(all, string(m.Payload))
	}
	return strings.Join(all, " ")
}

// refusing is a store with a constraint.
type refusing struct{ driver.Database }

var errNo = errors.New("the database says no")

func (r refusing) Publish(ctx context.Context, outbox string, msgs ...penstock.Message) error {
	for _, m := range msgs {
		if string(m.Payload) == "no" {
			return errNo
		}
	}
	return r.Database.Publish(ctx, outbox, msgs...)
}

func (refusing) RefusesContent(err error) bool { return errors.Is(err, errNo) }

// Bad lines of a file, and lines that the database refuses, do not affect the others and can be
// imported later.
func TestPublishFileGoesOnAfterErrors(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("outbox", "create", "orders")
		open := d.open
		d.open = func() driver.Database { return refusing{open()} }
		file := filepath.Join(t.TempDir(), "events.jsonl")
		long := strings.Repeat("x", 200<<10)
		write(t, file, `{"payload":"a"}
{"payload":"b","colour":1}

{"payload":"no"}
{"payload":"c"}
{"payload":"`+long+`","key":"`+long+`"}
{"payload":"d"}`)
		d.cli("publish", "orders", "--file", file).wants(t, terminal.ExitUsage, `line 2: is not a message: json: unknown field "colour"; nothing was published`)
		o := d.cli("publish", "orders", "--file", file, "--continue-on-error", "--json")
		same(t, "exit code", fmt.Sprint(o.code), fmt.Sprint(terminal.ExitUsage))
		contains(t, o.stderr, "penstock: 3 messages refused: see "+file+".rejects\n", "line 2: is not a message", "line 4: ", "line 6: key is 204800 bytes")
		contains(t, o.stdout, `"published":3`, `"rejected":3`)
		same(t, "published", d.published("orders"), "a c d")
		rejects, err := os.ReadFile(file + ".rejects")
		if err != nil {
			t.Fatal(err)
		}
		contains(t, string(rejects)[:100], `{"payload":"b","colour":1}`+"\n"+`{"payload":"no"}`+"\n"+`{"payload":"xxx`)
		same(t, "rejects", fmt.Sprint(strings.Count(string(rejects), "\n")), "3")
		d.run(false, "{\"payload\":\"e\"}\nbad\n", "publish", "orders", "--continue-on-error").wants(t, terminal.ExitUsage, "needs --rejects FILE")
		d.cli("publish", "orders", "--file", file, "--rejects", "x").wants(t, terminal.ExitUsage, "goes with --continue-on-error")
		d.cli("publish", "orders", "--file", file+".no").wants(t, terminal.ExitUsage, "no such file")
	})
}

// An interrupted import continues where it stopped, whatever the size of its batches. A repeated import does the same.
func TestImportsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, d *desk) {
		if _, has := d.store.(driver.OncePublisher); !has {
			d.must("outbox", "create", "orders")
			d.cli("publish", "orders", "--once", "imports", "--id", "1").wants(t, terminal.ExitUsage, "no inboxes")
			return
		}
		d.must("outbox", "create", "orders")
		d.must("outbox", "create", "copy")
		d.must("inbox", "create", "imports")
		d.must("queue", "create", "mails")
		file := filepath.Join(t.TempDir(), "events.jsonl")
		line := func(from, to int) (s string) {
			for i := from; i <= to; i++ {
				s += fmt.Sprintf("{\"payload\":\"p%d\"}\n", i)
			}
			return s
		}
		write(t, file, line(1, 5)+"cut o") // a producer that still writes leaves it like this
		d.cli("publish", "orders", "-f", file, "--once", "imports", "--batch", "2").wants(t, terminal.ExitUsage, "line 6: is not a message")
		d.cli("enqueue", "mails", "-f", file, "--once", "--batch", "2").wants(t, terminal.ExitUsage, "line 6: is not a job")
		write(t, file, line(1, 7)+line(7, 7)) // the same line twice is two messages
		for range 2 {
			d.must("publish", "orders", "-f", file, "--once", "imports", "--batch", "3")
			d.must("enqueue", "mails", "-f", file, "--once", "--batch", "3")
			same(t, "published", d.published("orders"), "p1 p2 p3 p4 p5 p6 p7 p7")
			same(t, "enqueued", fmt.Sprint(d.queue("mails").Ready), "8")
		}
		d.must("publish", "copy", "-f", file, "--once", "imports")
		same(t, "another outbox", d.published("copy"), "p1 p2 p3 p4 p5 p6 p7 p7")
		d.run(false, `{"id":"own","payload":"own"}`, "publish", "copy", "--once", "imports").wants(t, terminal.ExitOK, "")
		d.must("publish", "copy", "--id", "own", "--payload", "again", "--once", "imports")
		same(t, "an id of its own", d.published("copy"), "p1 p2 p3 p4 p5 p6 p7 p7 own")
		d.cli("publish", "copy", "-f", file, "--once", "nowhere").wants(t, terminal.ExitFailure, "no such inbox")
		d.cli("publish", "copy", "--payload", "x", "--once", "imports").wants(t, terminal.ExitUsage, "--once needs --id")
		d.cli("enqueue", "mails", "x", "--once").wants(t, terminal.ExitUsage, "are for JSON lines")
	})
}

// An import is killed at random moments and repeated until it finishes. Each line is then imported once, in its place.
func TestImportsOnceThoughKilled(t *testing.T) {
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const lines, kills, batch = 300, 3, "7"
	var text []string
	for i := range lines {
		text = append(text, fmt.Sprintf(`{"payload":"p%d","headers":{"room":%q}}`+"\n", i, strings.Repeat("x", 8<<10)))
	}
	for name, url := range map[string]func(*testing.T) string{"sqlite": sqliteFile, "postgres": func(t *testing.T) string { return postgrestest.Database(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, random := url(t), testseed.New(t.Name(), 0)
			d := urlDesk(t, at)
			d.must("outbox", "create", "orders")
			d.must("inbox", "create", "imports")
			d.must("queue", "create", "mails")
			for _, args := range [][]string{{"publish", "orders", "--once", "imports"}, {"enqueue", "mails", "--once"}} {
				file := filepath.Join(t.TempDir(), "events.jsonl")
				args = append(args, "--file", file, "--batch", batch)
				for range kills {
					importKilled(t, at, file, text[:1+random.IntN(lines-1)], args)
				}
				write(t, file, strings.Join(text, ""))
				d.must(args...)
			}
			var want []string
			for i := range lines {
				want = append(want, fmt.Sprintf("p%d", i))
			}
			same(t, "published", d.published("orders"), strings.Join(want, " "))
			same(t, "enqueued", fmt.Sprint(d.queue("mails").Ready), fmt.Sprint(lines))
		})
	}
}

// importKilled lets a separate process import a file, and kills it once it has read these lines. The file is a pipe, to keep
// the import from finishing first.
func importKilled(t *testing.T, url, file string, lines, args []string) {
	t.Helper()
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	importer := exec.CommandContext(t.Context(), os.Args[0], append(args, "--database-url", url)...)
	importer.Env, importer.Stderr = append(os.Environ(), "PENSTOCK_TEST_PROCESS=1"), t.Output()
	if err := importer.Start(); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(file, os.O_RDWR, 0) // it does not wait
	if err == nil {
		err = pipe.SetWriteDeadline(time.Now().Add(2 * time.Minute)) // to avoid waiting forever
	}
	if err == nil {
		_, err = pipe.WriteString(strings.Join(lines, ""))
	}
	if err := cmp.Or(err, importer.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = importer.Wait()
	if err := errors.Join(pipe.Close(), os.Remove(file)); err != nil {
		t.Fatal(err)
	}
}
