package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

// job show has all that is known of a job, in each state.
func TestJobShow(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		_, whole := d.queues().(driver.HistoryStore) // which also finds payloads
		if whole {
			d.must("queue", "set", "mails", "--keep-done", "1h")
		}
		q := d.queues().DriverQueue("mails")
		add := func(args ...string) string {
			t.Helper()
			return strings.TrimSpace(d.must(append([]string{"enqueue", "mails"}, args...)...))
		}
		// Each job is claimed before the next one is there.
		claim := func() penstock.Job {
			t.Helper()
			jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour, Worker: "w1"})
			if err != nil || len(jobs) != 1 {
				t.Fatal(jobs, err)
			}
			return jobs[0]
		}
		running := add("to-ann", "--kind", "welcome", "--key", "ann", "--priority", "3", "--header", "trace=t1")
		j := claim()
		if r, reports := q.(driver.Reporter); reports {
			if err := r.Report(t.Context(), j.Lease, []byte(`{"percent": 40}`)); err != nil {
				t.Fatal(err)
			}
		}
		failed := add("to-bob")
		if _, err := q.Retry(t.Context(), claim().Lease, time.Hour, "no SMTP server answers\nTraceback"); err != nil {
			t.Fatal(err)
		}
		dead := add("to-cid")
		if err := q.DeadLetter(t.Context(), claim().Lease, "no such address"); err != nil {
			t.Fatal(err)
		}
		done := add("to-dan")
		if _, err := q.Ack(t.Context(), claim().Lease); err != nil {
			t.Fatal(err)
		}
		ready := add("to-eve", "--group", "acme")
		behind := add("to-ann-2", "--key", "ann")
		if _, err := q.Claim(t.Context(), driver.Claim{Jobs: 5, Lease: time.Hour}); err != nil { // finds out that its key is busy
			t.Fatal(err)
		}

		payload := func(text string) string {
			if whole {
				return text + "\n"
			}
			return "payload   not shown"
		}
		contains(t, d.must("job", "show", "mails", running), "id        "+running+" of mails\n", "state     running", "lease ends in ", "kind      welcome\n", "key       ann\n", "group     -\n",
			"priority  3\n", "attempts  1\n", "worker    w1\n", "trace: t1", payload("to-ann"))
		contains(t, d.must("job", "show", "mails", failed), "state     delayed until ", ", in ", "attempts  1\n", "errors    1  ", "no SMTP server answers\n", "Traceback", payload("to-bob"),
			"\nNext: penstock job retry mails "+failed+"\n", "  or: penstock job cancel mails "+failed+"\n")
		contains(t, d.must("job", "show", "mails", dead), "state     dead since ", "no such address", "to-cid\n", "\nNext: penstock dead retry mails "+dead+"\n")
		contains(t, d.must("job", "show", "mails", ready), "state     ready\n", "group     acme\n", payload("to-eve"))
		contains(t, d.must("job", "show", "mails", behind), "state     behind its key\n", payload("to-ann-2"))
		if whole {
			contains(t, d.must("job", "show", "mails", running), "report    {\"percent\": 40}\n")
			contains(t, d.must("job", "show", "mails", ready, "--group", "acme"), "to-eve\n")
			contains(t, d.must("job", "show", "mails", done), "state     done at ", "attempts  1\n", "worker    w1\n", "payload   not kept\n")
		} else {
			d.cli("job", "show", "mails", done).wants(t, terminal.ExitFailure, "has no job "+done)
		}
		var shown struct {
			ID       json.Number
			State    string
			Attempts int
			Failures []penstock.Failure
			Payload  string
		}
		if err := json.Unmarshal([]byte(d.must("job", "show", "mails", dead, "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		if shown.ID.String() != dead || shown.State != "dead" || shown.Attempts != 1 || len(shown.Failures) != 1 || shown.Payload != "to-cid" {
			t.Errorf("as JSON: %+v", shown)
		}
		long := add(strings.Repeat("x", 5000), "--delay", "1h")
		if out, full := d.must("job", "show", "mails", long), d.must("job", "show", "mails", long, "--full"); whole && (len(out) > 3000 || !strings.Contains(out, "--full shows the rest") || len(full) < 5000) {
			t.Errorf("a long payload has %d bytes, with --full %d", len(out), len(full))
		}
		d.cli("job", "show", "mails", "99999").wants(t, terminal.ExitFailure, "has no job 99999")
		d.cli("job", "show", "mails", "x").wants(t, terminal.ExitUsage, `"x" is not the id of a job`)
		d.cli("job", "show", "nothing", "1").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
	})
}
