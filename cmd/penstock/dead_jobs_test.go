package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/store/postgres"
)

// deadJobDesk has four dead letters in the queue mails and returns their ids.
func deadJobDesk(t *testing.T, d *desk) []int64 {
	d.must("queue", "create", "mails")
	q := d.queues().DriverQueue("mails")
	made, err := q.Enqueue(t.Context(),
		penstock.NewJob{Key: "red", Payload: []byte(`{"to":"a"}`), Headers: map[string]string{"h": "v"}, Kind: "welcome", Priority: -3},
		penstock.NewJob{Key: "blue", Payload: []byte{0, 0xff}},
		penstock.NewJob{Group: "acme", Payload: []byte("x")},
		penstock.NewJob{Group: "acme", Key: "red", Kind: "digest"})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"", "acme"} {
		for _, j := range d.claim("mails", group) {
			reason := map[string]string{"": "disk\nfull", "acme": "no such street"}[j.Group]
			if err := q.DeadLetter(t.Context(), j.Lease, reason); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids := make([]int64, len(made))
	for i := range made {
		ids[i] = made[i].ID
	}
	return ids
}

// deadJobs lists the dead letters of mails as 1 to 4, in the order of ids.
func (d *desk) deadJobs(ids []int64, args ...string) string {
	d.t.Helper()
	var found []string
	for line := range strings.Lines(d.must(append([]string{"dead", "list", "mails", "--json"}, args...)...)) {
		var dead deadLetter[int64]
		if err := json.Unmarshal([]byte(line), &dead); err != nil {
			d.t.Fatal(err)
		}
		for i := range ids {
			if ids[i] == dead.ID {
				found = append(found, fmt.Sprint(i+1))
			}
		}
	}
	return strings.Join(found, " ")
}

func TestDeadJobsAreChosen(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		ids := deadJobDesk(t, d)
		for args, want := range map[string]string{
			"":                               "1 2 3 4",
			"--all":                          "1 2 3 4",
			"--limit 3":                      "1 2 3",
			"--key red":                      "1 4",
			"--group acme":                   "3 4",
			"--group=":                       "1 2",
			"--group= --limit 1":             "1",
			"--group= --key red":             "1",
			"--group acme --key red":         "4",
			"--error street":                 "3 4",
			"--kind welcome":                 "1",
			"--kind digest --group acme":     "4",
			"--kind digest --key blue":       "",
			"--older-than 1h":                "",
			"--newer-than 1h --older-than 0": "1 2 3 4",
			fmt.Sprint(ids[2], " ", ids[0]):  "1 3",
			fmt.Sprint(ids[2], " --key red"): "",
		} {
			same(t, args, d.deadJobs(ids, strings.Fields(strings.ReplaceAll(args, "--older-than 0", "--older-than 0s"))...), want)
		}
		table := d.must("dead", "list", "mails")
		contains(t, table, "KIND", "welcome", "GROUP", "acme", "   disk\n", "no such street",
			fmt.Sprintf("\nNext: penstock dead show mails %d\n  or: penstock dead retry mails %[1]d\n", ids[0]))
		if n := strings.Count(table, "\n"); n != 8 {
			t.Errorf("%d lines: %s", n, table)
		}
		same(t, "none", d.must("dead", "list", "mails", "--key", "green"), "0 dead letters of mails match.\n")

		for args, want := range map[string]string{
			"list mails --topic t":         "--topic chooses among messages, and mails is a queue",
			"list mails --seq 1":           "--seq chooses among messages",
			"list mails x":                 `"x" is not the id of a job`,
			"retry mails --group=":         "--group is empty",
			"discard mails --group= --yes": "--group is empty",
			"list orders --kind welcome":   "--kind chooses among jobs, and orders is not a queue",
			"retry mails --kind=":          "--kind is empty",
			"list orders --group=":         "--group chooses among jobs, and orders is not a queue",
			"list orders --group acme":     "--group chooses among jobs, and orders is not a queue",
			"retry mails":                  "say which dead letters",
			"discard mails --all --key r":  "--all is given with flags that narrow the choice: leave it out",
		} {
			d.cli(append([]string{"dead"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
		}
		d.cli("dead", "list", "orders").wants(t, terminal.ExitFailure, `outbox "orders": no such outbox: nor is there a queue of that name`)
	})
}

func TestDeadJobIsShown(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		ids := deadJobDesk(t, d)
		first := d.must("dead", "show", "mails", fmt.Sprint(ids[0]))
		contains(t, first, fmt.Sprintf("id        %d of mails\n", ids[0]), "kind      welcome\n", "key       red\n", "group     -\n", "priority  -3\n", "after 1 attempt\n", "headers   h: v\n", "penstock-kind: welcome\n",
			"disk\n               full\n", "\n\n{\"to\":\"a\"}\n", fmt.Sprintf("Next: penstock dead retry mails %d\n", ids[0]))
		var dead deadLetter[int64]
		if err := json.Unmarshal([]byte(d.must("dead", "show", "mails", fmt.Sprint(ids[1]), "--json")), &dead); err != nil {
			t.Fatal(err)
		}
		if dead.ID != ids[1] || dead.Key != "blue" || string(dead.PayloadBase64) != "\x00\xff" || dead.Error != "disk\nfull" ||
			dead.Attempts != 1 || len(dead.Failures) != 1 || time.Since(dead.DiedAt) > time.Hour {
			t.Errorf("got %+v", dead)
		}
		d.cli("dead", "show", "mails", "999999").wants(t, terminal.ExitFailure, "mails has no such dead letter: id 999999: penstock dead list")
	})
}

func TestDeadJobIsShownWithItsReport(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.must("queue", "create", "mails")
		d.must("enqueue", "mails", "x")
		q := d.queues().DriverQueue("mails")
		reporter, ok := q.(driver.Reporter)
		if !ok {
			t.Skip("the store keeps no reports")
		}
		jobs, err := q.Claim(t.Context(), driver.Claim{Jobs: 1, Lease: time.Hour})
		if err == nil {
			err = errors.Join(reporter.Report(t.Context(), jobs[0].Lease, []byte(`{"rows":7}`)), q.DeadLetter(t.Context(), jobs[0].Lease, "no"))
		}
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint(jobs[0].ID)
		shown := strings.ReplaceAll(d.must("dead", "show", "mails", id)+d.must("dead", "show", "mails", id, "--json"), ": 7", ":7")
		contains(t, shown, "report    {\"rows\":7}\n", `"report":{"rows":7}`)
		if strings.Contains(shown, "penstock-report") {
			t.Errorf("the report is also among the headers: %s", shown)
		}
	})
}

func TestDeadJobsAreRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		ids := deadJobDesk(t, d)
		id := func(i int) string { return fmt.Sprint(ids[i-1]) }
		same(t, "by key and group", d.must("dead", "retry", "mails", "--kind", "digest", "--group", "acme"), "1 dead letter of mails retried.\n")
		same(t, "dead", d.deadJobs(ids), "1 2 3")
		if jobs := d.claim("mails", "acme"); len(jobs) != 1 || jobs[0].ID != ids[3] || jobs[0].Attempt != 2 {
			t.Errorf("runs again: %+v", jobs)
		}
		d.cli("dead", "retry", "mails", id(1), id(4)).wants(t, terminal.ExitFailure, "mails has no such dead letter: id "+id(4))
		same(t, "nothing was done for the other", d.deadJobs(ids), "1 2 3")

		same(t, "only counted", d.must("dead", "discard", "mails", "--dry-run", "--json"), `{"chosen":3,"queue":"mails"}`+"\n")
		same(t, "only counted", d.must("dead", "resend", "mails", "--group", "acme", "--dry-run"), "1 dead letter of mails chosen.\n")
		same(t, "dead", d.deadJobs(ids), "1 2 3")
		d.cli("dead", "discard", "mails", "--key", "red").wants(t, terminal.ExitUsage, "nothing was discarded: there is no terminal to ask on")
		d.asked("y\n", "dead", "discard", "mails", "--group", "acme").wants2(t, terminal.ExitOK, "discard 1 dead letter of mails? [y/N] ")
		same(t, "dead", d.deadJobs(ids), "1 2")
		same(t, "as JSON", d.must("dead", "discard", "mails", id(2), "--json"), `{"discarded":1,"queue":"mails"}`+"\n")
		d.cli("dead", "retry", "mails", "--all").wants(t, terminal.ExitUsage, "nothing was retried")
		same(t, "all", d.must("dead", "retry", "mails", "--all", "--yes"), "1 dead letter of mails retried.\n")
		same(t, "dead", d.deadJobs(ids), "")
		same(t, "no question about none", d.must("dead", "discard", "mails", "--all"), "0 dead letters of mails discarded.\n")
		same(t, "left", fmt.Sprint(jobsIn(d.queue("mails"))), "2")
	})
}

// jobCrowd has dead letters with the ids 1 to last.
type jobCrowd struct {
	driver.Database
	last  int64
	acted []admin.DeadJobQuery
}

func (c *jobCrowd) Close() error { return nil }

func (c *jobCrowd) DeadJobs(_ context.Context, q admin.DeadJobQuery) (page []admin.DeadJob, err error) {
	for id := q.AfterID + 1; id <= c.last && len(page) < q.Limit; id++ {
		page = append(page, admin.DeadJob{Job: penstock.Job{ID: id}})
	}
	return page, nil
}

func (c *jobCrowd) RetryDeadJobs(_ context.Context, q admin.DeadJobQuery) (int, error) {
	c.acted = append(c.acted, q)
	return len(q.IDs), nil
}

func (c *jobCrowd) DiscardDeadJobs(ctx context.Context, q admin.DeadJobQuery) (int, error) {
	return c.RetryDeadJobs(ctx, q)
}

func TestDeadJobsAreActedOnByID(t *testing.T) {
	for _, verb := range []string{"retry", "discard"} {
		c := &jobCrowd{last: 703}
		d := &desk{t: t, open: func() driver.Database { return c }}
		contains(t, d.must("dead", verb, "emails", "--key", "red", "--yes"), "703 dead letters of emails")
		next := int64(1)
		for _, q := range c.acted {
			if len(q.IDs) == 0 || len(q.IDs) > 500 || q.IDs[0] != next || q.Queue != "emails" || q.Key != "red" {
				t.Fatalf("%s: acts on %d jobs from %v of %q", verb, len(q.IDs), q.IDs, q.Queue)
			}
			next = q.IDs[len(q.IDs)-1] + 1
		}
		same(t, "acted on", fmt.Sprint(next-1), "703")
	}
}

// A dead letter that is a message is published to its outbox again, under a new id, and stops no job from being enqueued.
func TestDeadMessagesOfAQueueAreResent(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	d := urlDesk(t, db.URL)
	d.must("queue", "create", "mails")
	d.outbox("orders")
	for _, sql := range []string{
		"select penstock.enqueue('mails', 'a job', holds => penstock.barrier('mails'))",
		"select penstock.publish_after('mails', '{1}', 'orders', 'a message', key => 'k', topic => 't', id => 'old', headers => '{\"h\": \"1\"}', on_dead => 'cancel')",
		"select penstock.seal('mails', 1)",
		"select penstock.dead_letter('mails', lease, 'no') from penstock.claim('mails')",
	} {
		db.Exec(sql)
	}
	same(t, "resend", d.must("dead", "resend", "mails", "--kind", "publish to orders", "--discard"), "1 dead letter of mails sent again.\n")
	if n := db.Number("select count(*) from penstock.orders where key = 'k' and topic = 't' and headers = '{\"h\": \"1\"}' and id <> 'old' and payload = 'a message'"); n != 1 {
		t.Errorf("%d messages were published, want 1", n)
	}
	db.Exec("select penstock.retry_dead_jobs('mails', '{1}')")
	db.Exec("select penstock.publish_after('mails', '{1}', 'orders', 'another', on_dead => 'cancel')")
	db.Exec("select penstock.dead_letter('mails', lease, 'no') from penstock.claim('mails')")
	same(t, "both", d.must("dead", "resend", "mails", "--all", "--yes"), "2 dead letters of mails sent again.\n")
	if n := db.Number("select (select count(*) from penstock.orders) * 10 + (select count(*) from penstock.mails)"); n != 21 {
		t.Errorf("messages and jobs are %d, want 21", n)
	}
}

// noJobs is a store whose queues take no jobs.
type noJobs struct{ *postgres.Store }

func (s noJobs) DriverQueue(name string) driver.Queue { return noJobsQueue{s.Store.DriverQueue(name)} }

type noJobsQueue struct{ driver.Queue }

func (noJobsQueue) Enqueue(context.Context, ...penstock.NewJob) ([]penstock.Enqueued, error) {
	return nil, errors.New("no room for jobs")
}

// A message that was published again is discarded, though the job after it is refused: a second try does not publish it twice.
func TestDeadMessagesAreDiscardedWithTheirTransaction(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	d := urlDesk(t, db.URL)
	d.must("queue", "create", "mails")
	d.outbox("orders")
	for _, sql := range []string{
		"select penstock.enqueue('mails', 'a job', holds => penstock.barrier('mails'))",
		"select penstock.publish_after('mails', '{1}', 'orders', 'a message', on_dead => 'cancel')",
		"select penstock.seal('mails', 1)",
		"select penstock.dead_letter('mails', lease, 'no') from penstock.claim('mails')",
	} {
		db.Exec(sql)
	}
	open := d.open
	d.open = func() driver.Database { return noJobs{open().(*postgres.Store)} }
	o := d.cli("dead", "resend", "mails", "--all", "--yes", "--discard")
	contains(t, o.stderr, "no room for jobs")
	same(t, "the first try", o.stdout, "1 dead letter of mails sent again, 1 not.\n")
	d.open = open
	same(t, "the second try", d.must("dead", "resend", "mails", "--all", "--yes", "--discard"), "1 dead letter of mails sent again.\n")
	if n := db.Number("select (select count(*) from penstock.orders) * 100 + (select count(*) from penstock.mails) * 10 + (select count(*) from penstock._dead_job)"); n != 110 {
		t.Errorf("messages, jobs and dead letters are %d, want 110", n)
	}
}
