package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

// queue set keeps jobs, and queue done lists them. A database that cannot do this shows which can.
func TestQueueDone(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.cli("queue", "set", "mails", "--keep-done", "often").wants(t, terminal.ExitUsage, `--keep-done is "often"`)
		d.cli("queue", "set", "mails", "--keep-done-bytes", "7").wants(t, terminal.ExitUsage, "use 1.0 MiB or more")
		if _, keeps := d.queues().(driver.HistoryStore); !keeps {
			d.cli("queue", "set", "mails", "--keep-done", "24h").wants(t, terminal.ExitUsage, "is not possible in this database: jobs that are done are kept in PostgreSQL only")
			d.cli("queue", "done", "mails").wants(t, terminal.ExitUsage, "PostgreSQL does")
			return
		}
		contains(t, d.must("queue", "done", "mails"), "keeps no jobs that are done: penstock queue set mails --keep-done 24h")
		contains(t, d.must("queue", "set", "mails", "--keep-done", "24h", "--keep-done-bytes", "2MiB"), "done jobs kept for 1d, 2.0 MiB at most")
		contains(t, d.must("queue", "done", "mails"), "0 jobs of mails are kept.")
		d.jobs("mails", "a", "b")
		q := d.queues().DriverQueue("mails")
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 2, Lease: time.Minute, Worker: "ann"})
		if err == nil {
			err = q.(driver.Reporter).Report(t.Context(), jobs[1].Lease, []byte("17"))
		}
		if err == nil {
			_, err = q.Ack(t.Context(), jobs[0].Lease, jobs[1].Lease)
		}
		if err != nil {
			t.Fatal(err)
		}
		contains(t, d.must("queue", "done", "mails"), "ann", "WORKER", "17")
		contains(t, d.must("queue", "done", "mails", fmt.Sprint(jobs[1].ID), "--json"), fmt.Sprintf(`{"id":%d,`, jobs[1].ID), `"worker":"ann"`, `"report":17`)
		contains(t, d.must("queue", "done", "mails", "4711"), "0 jobs of mails are kept that match.")
		contains(t, d.must("queue", "done", "mails", "--kind", "welcome"), "0 jobs of mails are kept that match.")
		contains(t, d.must("status"), "  DONE\n")
		d.cli("queue", "done", "nothing").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
		d.cli("queue", "done", "mails", "--limit", "0").wants(t, terminal.ExitUsage, "--limit is 0")
	})
}
