package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

// job list has the jobs of all states and groups.
func TestJobList(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.cli("job", "list", "mails", "--state", "dead").wants(t, terminal.ExitUsage, `--state is "dead": use running, ready, waiting, delayed`)
		d.cli("job", "list", "mails", "--limit", "0").wants(t, terminal.ExitUsage, "--limit is 0")
		contains(t, d.must("job", "list", "mails"), "0 jobs of mails match.")
		ids := map[string]string{}
		add := func(name string, args ...string) {
			t.Helper()
			ids[name] = strings.TrimSpace(d.must(append([]string{"enqueue", "mails", "{}"}, args...)...))
		}
		add("fails", "--kind", "welcome")
		add("runs", "--kind", "digest", "--key", "ann")
		jobs, err := d.queues().DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Hour, Worker: "w1"})
		if err != nil || len(jobs) != 2 {
			t.Fatal(jobs, err)
		}
		for _, j := range jobs {
			if j.Kind() == "welcome" {
				if _, err := d.queues().DriverQueue("mails").Retry(t.Context(), j.Lease, time.Hour, "no SMTP server answers\nTraceback"); err != nil {
					t.Fatal(err)
				}
			}
		}
		add("plain")
		add("acme", "--group", "acme")
		add("later", "--delay", "48h", "--group", "acme")
		listed := func(want string, args ...string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(d.must(append([]string{"job", "list", "mails"}, args...)...)) {
				for name, id := range ids {
					if fields := strings.Fields(line); fields[0] == id {
						got = append(got, name+" "+fields[1])
					}
				}
			}
			same(t, fmt.Sprint("jobs ", args), strings.Join(got, ", "), want)
		}
		listed("runs running, plain ready, acme ready, fails delayed, later delayed")
		listed("fails delayed", "--kind", "welcome")
		listed("runs running", "--key", "ann")
		listed("acme ready", "--state", "ready", "--group", "acme")
		listed("plain ready", "--state", "ready", "--group", "")
		listed("later delayed", "--state", "delayed", "--group", "acme")
		listed("later delayed, fails delayed", "--state", "delayed", "--newest")
		listed("runs running, plain ready", "--limit", "2")
		contains(t, d.cli("job", "list", "mails", "--limit", "4").stderr, "there are more: raise --limit")
		same(t, "a note after the last job", d.cli("job", "list", "mails", "--limit", "5").stderr, "")
		out := d.must("job", "list", "mails", "--state", "delayed")
		contains(t, out, "welcome", "no SMTP server answers")
		if strings.Contains(out, "Traceback") {
			t.Errorf("a report of many lines is shown: %s", out)
		}
		contains(t, d.must("job", "list", "mails", "--kind", "digest", "--json"), `{"id":`+ids["runs"]+`,"kind":"digest","key":"ann"`, `"state":"running"`, `"worker":"w1"`)
		add("second", "--key", "ann")
		if _, err := d.queues().DriverQueue("mails").Claim(t.Context(), driver.Claim{Jobs: 5, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		contains(t, d.must("job", "list", "mails", "--state", "waiting"), ids["second"]+"  behind its key ")
		d.cli("job", "list", "nothing").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
	})
}
