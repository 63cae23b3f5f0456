package postgres_test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/test/docblock"
)

// What pages show of other languages' drivers runs, and does what it says. One sends
// its parameters without types.

func TestPythonDocs(t *testing.T) {
	t.Parallel()
	f := newClientDocs(t)
	dir := t.TempDir()
	python := "python3"
	if osexec.Command(python, "-m", "pip", "--version").Run() != nil { // Debian has it in environments only, which take long to make
		f.program(dir, python, "-m", "venv", "v")
		python = filepath.Join(dir, "v", "bin", "python")
	}
	f.program(dir, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", dir, "psycopg[binary,pool]>=3.2,<4")
	blocks := docblock.Of(t, queuesPage, "python")
	if len(blocks) != 3 {
		t.Fatalf("%d blocks of Python", len(blocks))
	}
	const around = `
import os, psycopg
dsn = os.environ["DATABASE_URL"]
class TemporaryError(Exception): pass
class Idle(Exception): pass
class time:
    def sleep(s): raise Idle
def send(payload):
    if payload == b"temporary": raise TemporaryError("later")
    if payload == b"bad": raise ValueError("never")
    print(bytes(payload).hex())
try:
    exec(open("0.py").read())
except Idle:
    pass
psycopg.connect(dsn, autocommit=True).execute("select penstock.enqueue_many('emails', %s)", (["{\"path\": \"C:\\\\dir\"}", "temporary", "bad"],))
exec(open("1.py").read())
psycopg.connect(dsn, autocommit=True).execute("select penstock.enqueue_many('emails', array_fill('more'::text, array[11]))")
try:
    exec(open("2.py").read())
except Idle:
    pass
`
	// Of docs/guides/inbox.md: m3 is held until m2 comes, and each is booked once.
	const inbox = `
import os, psycopg_pool
from types import SimpleNamespace as Is
pool = psycopg_pool.ConnectionPool(os.environ["DATABASE_URL"], min_size=1, open=True)
def book(conn, key, payload):
    print(bytes(payload).hex())
exec(open("3.py").read())
class channel:
    def basic_ack(tag):
        print(f"{tag:02x}")
for tag, (id, previous, traceparent) in enumerate([("m1", None, None), ("m3", "m2", "00-…"), ("m1", None, None), ("m2", "m1", None)], 10):
    headers = {"penstock-key": "k", "penstock-previous": previous, "traceparent": traceparent}
    on_message(channel, Is(delivery_tag=tag), Is(message_id=id, headers={n: v for n, v in headers.items() if v}), id.encode())
on_message(channel, Is(delivery_tag=14), Is(message_id="m4", headers=None), b"m4")
pool.close()
`
	blocks = append(blocks, docblock.Of(t, inboxPage, "python")...)
	for i, b := range append(blocks, around, inbox) {
		f.Must(os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".py")), []byte(b), 0o600))
	}
	f.wantOutput(f.program(dir, python, "4.py"), append([]string{`{"path": "C:\\dir"}`}, slices.Repeat([]string{"more"}, 11)...)...)
	f.wantText("{1,2}", "select array_agg(job order by job)::text from sent")
	f.wantText("(1,0,0,1)", "select (ready + delayed, running, waiting, dead)::text from penstock.queue_status('emails')") // the pause may be over
	f.Exec("select penstock.create_inbox('billing')")
	f.wantOutput(f.program(dir, python, "5.py"), "m1", "\x0a", "\x0b", "\x0c", "m2", "m3", "\x0d", "m4", "\x0e")
}

func TestNodeDocs(t *testing.T) {
	t.Parallel()
	f := newClientDocs(t)
	dir := t.TempDir()
	f.program(dir, "npm", "install", "--silent", "--no-audit", "--no-fund", "pg@8")
	blocks := docblock.Of(t, queuesPage, "js")
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of JavaScript", len(blocks))
	}
	const send = `
let sent = 0
async function send(payload) {
  if (payload.equals(Buffer.from('temporary'))) throw new Error('later')
  console.log(payload.toString('hex'))
}
`
	// The page does not show these: each function that settles, a schedule, an inbox and an outbox,
	// all with parameters that have no type.
	const more = `
const again = new pg.Client(process.env.DATABASE_URL)
await again.connect()
const call = async (sql, ...args) => (await again.query(sql, args)).rows
const backslash = JSON.stringify({ path: 'C:\\dir' })
await call('select penstock.enqueue_many($1, $2)', 'emails', ['a', backslash, 'b', 'c', 'd', 'e'])
const first = (await call('select lease from penstock.claim($1, $2)', 'emails', 1)).map(r => r.lease)
const leases = (await call('select id, lease from penstock.ack_claim($1, $2, $3)', 'emails', first, 9)).filter(r => r.id).map(r => r.lease)
await call('select penstock.extend($1, $2, $3), penstock.extend_many($1, $4, $3)', 'emails', leases[0], '1 min', leases)
await call('select penstock.ack($1, $2)', 'emails', leases[0])
await call('select penstock.release($1, $2)', 'emails', leases[1])
await call('select penstock.release_many($1, $2)', 'emails', [leases[2]])
await call('select penstock.retry($1, $2, $3, $4)', 'emails', leases[3], '1 hour', 'no')
await call('select penstock.dead_letter($1, $2, $3)', 'emails', leases[4], 'no')
await call('select penstock.schedule($1, $2, $3, $4)', 'emails', 'daily', '@daily', backslash)
await call('select penstock.schedule_bytes($1, $2, $3, $4)', 'emails', 'bytes', '@daily', Buffer.from([0, 255]))
await call('select penstock.publish($1, $2), penstock.publish_bytes($1, $3)', 'orders', backslash, Buffer.from([0, 255]))
await call('select * from penstock.inbox_in_order($1, $2, $3, $4, $5, $6)', 'billing', 'k', 'm2', 'm1', '{}', backslash)
await call('select * from penstock.inbox_in_order_bytes($1, $2, $3, $4, $5, $6)', 'billing', 'k', 'm3', 'm2', '{}', Buffer.from([0, 255]))
await again.end()
`
	f.Exec("select penstock.create_inbox('billing')")
	f.Exec("select penstock.enqueue('emails', 'temporary')")
	f.Must(os.WriteFile(filepath.Join(dir, "docs.mjs"), []byte(blocks[0]+send+more), 0o600))
	f.wantOutput(f.program(dir, "node", "docs.mjs"), `{"to":"ada@example.org"}`, "\x00\xff")
	// One of them is to wait for an hour, another for as long as the page says, which may be over.
	f.wantText("(4,0,t,0,1)", "select (ready + delayed, running, delayed > 0, waiting, dead)::text from penstock.queue_status('emails')")
	const backslash = `{"path":"C:\\dir"}`
	f.wantText(backslash, "select convert_from(payload, 'UTF8') from penstock._schedule where name = 'daily'")
	f.wantText(`\x00ff`, "select payload::text from penstock._schedule where name = 'bytes'")
	f.wantText(backslash, "select convert_from(payload, 'UTF8') from penstock.orders order by seq limit 1")
	f.wantText(backslash, "select convert_from(payload, 'UTF8') from penstock.inbox_held('billing', message_id => 'm2')")
}

// clientDocs is a database for the programs of pages.
type clientDocs struct{ *fixture }

func newClientDocs(t *testing.T) *clientDocs {
	f := &clientDocs{fixture: newJobs(t, "fifo")}
	f.Exec("select penstock.create_queue('emails')")
	f.Exec("create table sent (job bigint primary key)")
	return f
}

// program runs one. Without it, or without a network to install it from, the test is skipped, but not in CI.
func (f *clientDocs) program(dir, name string, args ...string) string {
	f.Helper()
	cmd := osexec.CommandContext(f.Ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DATABASE_URL="+f.URL)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return string(out)
	}
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	if _, missing := osexec.LookPath(name); !ci && (missing != nil || strings.Contains(strings.Join(args, " "), "install") || strings.Contains(strings.Join(args, " "), "venv")) {
		f.Skipf("%s %s: %v: %s", name, strings.Join(args, " "), err, &stderr)
	}
	f.Fatalf("%s %s: %v: %s%s", name, strings.Join(args, " "), err, out, &stderr)
	return ""
}

// wantOutput compares payloads, each a line in hexadecimal.
func (f *clientDocs) wantOutput(out string, payloads ...string) {
	f.Helper()
	var want strings.Builder
	for _, p := range payloads {
		fmt.Fprintf(&want, "%x\n", p)
	}
	if out != want.String() {
		f.Errorf("sent %q, want %q", out, want.String())
	}
}
